"""Long texts to vectors, by calling the encoder; the tokenizer is in tokenizer.json beside this file."""

from zooserve_ensembles.stages.long_text import TritonPythonModel

__all__ = ["TritonPythonModel"]
