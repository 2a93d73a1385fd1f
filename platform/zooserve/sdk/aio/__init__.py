"""The client over asyncio. `zooserve.sdk.blocking` is made from it by `make sdk`."""
