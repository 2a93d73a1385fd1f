"""The client over threads, made from `zooserve.sdk.aio` by `make sdk`; `concurrency` alone is written by hand."""
