"""Encoded images to the pixels that the network reads."""

from zooserve_ensembles.stages.image import TritonPythonModel

__all__ = ["TritonPythonModel"]
