"""Text to word ids; the word list is in vocabulary.json beside this file."""

from zooserve_ensembles.stages.words import TritonPythonModel

__all__ = ["TritonPythonModel"]
