"""ONNX graphs and tokenizer files built from pinned weights, without torch.

Each module has one `build(inputs) -> bytes`: `inputs` maps a source file's base name to where it lies. Nothing
here downloads or places anything; `zooserve_ensembles.recipes` lists the builds, `zooserve.weights` runs them.
"""

__all__: list[str] = []
