"""Does a Triton model directory of NVIDIA's llmapi kind fit the leaf's contract, and one release of TensorRT-LLM?

A check passes: reading (the files, each field with its line) -> the rules, one module a noun -> findings.
"""

from zooserve_ensembles.leaf_directory.inspection import LEAF_RULES, check_leaf_directories

__all__ = ["LEAF_RULES", "check_leaf_directories"]
