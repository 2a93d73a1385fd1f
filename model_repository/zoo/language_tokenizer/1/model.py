"""Text to the features that tell its language; the automaton is in automaton.npz beside this file."""

from zooserve_ensembles.stages.language import TritonPythonModel

__all__ = ["TritonPythonModel"]
