"""The graph of the trees against LightGBM's own predictions, which were recorded when they were trained."""

import json
from pathlib import Path

import numpy as np
import pytest

from zooserve_ensembles.graphs.trees import HEAD, RARITY, TreesUnreadable, build, read_trees
from zooserve_ensembles.ranking_features import FEATURES

SMALL = """tree
version=v4
num_class=1
max_feature_idx=1
objective=binary sigmoid:1
feature_names=one two

Tree=0
num_leaves=3
num_cat=0
split_feature=0 1
threshold=0.5 -0.25
decision_type=2 2
left_child=1 -1
right_child=-2 -3
leaf_value=-1 2 0.5
is_linear=0
shrinkage=1

Tree=1
num_leaves=1
num_cat=0
leaf_value=0.25
is_linear=0
shrinkage=1

end of trees
"""


def written(folder: Path, text: str) -> dict[str, Path]:
    file = folder / "tree_ranker.txt"
    file.write_text(text)
    return {"tree_ranker.txt": file}


def test_leaves_of_all_trees_are_added_and_passed_through_a_sigmoid(tmp_path: Path, run_graph) -> None:
    rows = np.array([[0.5, -0.25], [0.5, 0.0], [0.75, 0.0]], np.float32)
    (scores,) = run_graph(build(written(tmp_path, SMALL)), features=rows).values()
    expected = 1 / (1 + np.exp(-np.array([[-1 + 0.25], [0.5 + 0.25], [2 + 0.25]])))
    np.testing.assert_allclose(scores, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("binary sigmoid:1", "regression", "objective 'regression'"),
        ("decision_type=2 2", "decision_type=2 1", r"decision types \['1'\]"),
        ("is_linear=0\nshrinkage=1\n\nTree=1", "is_linear=1\nshrinkage=1\n\nTree=1", "linear trees"),
    ],
)
def test_what_the_graph_cannot_say_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(TreesUnreadable, match=told):
        build(written(tmp_path, SMALL.replace(old, new)))


def test_the_committed_trees_predict_as_they_did_when_trained(run_graph) -> None:
    recorded = json.loads(HEAD.with_suffix(".json").read_text("utf-8"))["recorded"]
    rows = np.array(recorded["features"])
    assert (rows.astype(np.float32) == rows).all(), "on the grid, float32 loses nothing"
    (scores,) = run_graph(build({}), features=rows.astype(np.float32)).values()
    np.testing.assert_allclose(scores[:, 0], recorded["predictions"], atol=1e-5)
    assert np.ptp(scores) > 0.5


def test_the_committed_trees_know_the_features_by_name_and_order() -> None:
    assert tuple(read_trees(HEAD).names) == FEATURES


def test_the_table_of_rarity_has_a_value_above_zero_for_every_token() -> None:
    rarity = np.load(RARITY, allow_pickle=False)
    assert rarity.shape == (30_522,)
    assert (rarity > 0).all()
