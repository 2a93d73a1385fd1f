"""Token vectors to late-interaction scores."""

from zooserve_ensembles.stages.maxsim import TritonPythonModel

__all__ = ["TritonPythonModel"]
