"""zooserve: a zoo of models behind one HTTP API.

This package is the kernel: errors, the catalogue, settings, the Triton client and the life of the servers.
Nothing here imports a layer above it. Importing it loads neither Ray, nor ONNX Runtime, nor torch.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
