"""The tree ranker's graph, from LightGBM's own text file: the one that Triton's FIL backend reads too."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

__all__ = ["HEAD", "RARITY", "Tree", "TreesUnreadable", "build", "build_rarity", "graph_of", "read_trees"]

HEADS = Path(__file__).parent.parent / "heads"
HEAD = HEADS / "tree_ranker.txt"
"""The trained trees, committed; `ensembles/training/tree_ranker.py` makes them."""
RARITY = HEADS / "rarity.npy"
"""The inverse document frequency of every token id, in halves; made by the same script."""

NUMERIC = {"0", "2"}
"""LightGBM's decision types without categories, and without a meaning of its own for missing values."""


class TreesUnreadable(ValueError):
    """The file holds something that this cannot turn into a graph; the message says what."""


@dataclass(frozen=True)
class Tree:
    """Inner nodes by number: feature, threshold, and two children, where -1 - leaf stands for a leaf."""

    features: Sequence[int]
    thresholds: Sequence[float]
    left: Sequence[int]
    right: Sequence[int]
    leaves: Sequence[float]


@dataclass(frozen=True)
class Trees:
    """A whole model: the sum of its trees is the logit of a probability."""

    names: Sequence[str]
    trees: Sequence[Tree]


def build(inputs: Mapping[str, Path]) -> bytes:
    """The graph `features` -> `score` [batch, 1]."""
    return graph_of(read_trees(inputs.get("tree_ranker.txt", HEAD)))


def build_rarity(inputs: Mapping[str, Path]) -> bytes:
    """The table, unchanged: a stage reads what lies in its own version folder, so that releases may differ in it."""
    return inputs.get("rarity.npy", RARITY).read_bytes()


def read_trees(file: Path) -> Trees:
    """LightGBM's text file. Raises TreesUnreadable for what is no plain binary classifier over numbers."""
    head, *blocks = file.read_text(encoding="utf-8").split("end of trees")[0].split("\nTree=")
    fields = _fields(head)
    if fields.get("objective", "").split(" ") != ["binary", "sigmoid:1"]:
        raise TreesUnreadable(f"{file.name}: objective {fields.get('objective')!r}, this reads binary with sigmoid:1")
    return Trees(fields["feature_names"].split(" "), [_tree(file, _fields(block)) for block in blocks])


def graph_of(model: Trees) -> bytes:
    """One TreeEnsembleRegressor, its sum through a sigmoid."""
    nodes = [node for number, tree in enumerate(model.trees) for node in _nodes(number, tree)]
    leaves = [leaf for number, tree in enumerate(model.trees) for leaf in _leaves(number, tree)]
    attributes: dict[str, Any] = {f"nodes_{key}": [node[key] for node in nodes] for key in nodes[0]}
    attributes |= {f"target_{key}": [leaf[key] for leaf in leaves] for key in leaves[0]}
    given = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", len(model.names)])
    answer = helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 1])
    regressor = helper.make_node(
        "TreeEnsembleRegressor",
        ["features"],
        ["logit"],
        domain="ai.onnx.ml",
        n_targets=1,
        aggregate_function="SUM",
        post_transform="NONE",
        **attributes,
    )
    graph = helper.make_graph(
        [regressor, helper.make_node("Sigmoid", ["logit"], ["score"])], "tree_ranker", [given], [answer]
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    content: bytes = made.SerializeToString()
    return content


def _fields(block: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _tree(file: Path, fields: Mapping[str, str]) -> Tree:
    if unknown := set(fields.get("decision_type", "").split()) - NUMERIC:
        raise TreesUnreadable(f"{file.name}: decision types {sorted(unknown)}, this reads splits on numbers only")
    if fields.get("is_linear", "0") != "0":
        raise TreesUnreadable(f"{file.name}: linear trees, this reads constant leaves only")

    def numbers(name: str) -> list[float]:
        return [float(value) for value in fields.get(name, "").split()]

    def places(name: str) -> list[int]:
        return [int(value) for value in fields.get(name, "").split()]

    return Tree(
        places("split_feature"),
        numbers("threshold"),
        places("left_child"),
        places("right_child"),
        numbers("leaf_value"),
    )


def _place(tree: Tree, child: int) -> int:
    """A child's number among all nodes of its tree: inner ones first, then the leaves."""
    return child if child >= 0 else len(tree.features) + (-1 - child)


def _nodes(number: int, tree: Tree) -> Iterator[dict[str, int | float | str]]:
    inner = zip(tree.features, tree.thresholds, tree.left, tree.right, strict=True)
    for place, (feature, threshold, left, right) in enumerate(inner):
        yield _node(number, place, "BRANCH_LEQ", feature, threshold, _place(tree, left), _place(tree, right))
    for place in range(len(tree.features), len(tree.features) + len(tree.leaves)):
        yield _node(number, place, "LEAF", 0, 0.0, 0, 0)


def _node(
    tree: int, place: int, mode: str, feature: int, threshold: float, low: int, high: int
) -> dict[str, int | float | str]:
    return {
        "treeids": tree,
        "nodeids": place,
        "modes": mode,
        "featureids": feature,
        "values": float(threshold),
        "truenodeids": low,
        "falsenodeids": high,
        "missing_value_tracks_true": 0,
    }


def _leaves(number: int, tree: Tree) -> Iterator[dict[str, int | float]]:
    for leaf, weight in enumerate(tree.leaves):
        yield {"treeids": number, "nodeids": len(tree.features) + leaf, "ids": 0, "weights": float(weight)}
