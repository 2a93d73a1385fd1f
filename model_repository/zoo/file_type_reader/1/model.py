"""The bytes of a file to what magika's graph reads; its sizes are in config.json beside this file."""

from zooserve_ensembles.stages.file import TritonPythonModel

__all__ = ["TritonPythonModel"]
