"""Text to token ids; the tokenizer is in tokenizer.json beside this file."""

from zooserve_ensembles.stages.tokenizer import TritonPythonModel

__all__ = ["TritonPythonModel"]
