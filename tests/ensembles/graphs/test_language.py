"""The language graph and its automaton against the package's own answers."""

import numpy as np
import pytest

from zooserve_ensembles.language import Automaton, features_of


@pytest.fixture
def answers(placed, run_graph, golden):
    """The graph's outputs for the golden texts."""
    automaton = Automaton.from_file(placed("zoo/language_tokenizer/1/automaton.npz"))
    found = features_of(automaton, [row["text"] for row in golden("language")["rows"]])
    feed = {"features": found.features, "counts": found.counts, "sharpness": found.sharpness}
    return run_graph(placed("zoo/language_encoder/1/model.onnx"), **feed)


def test_the_likeliest_language_is_the_package_s_with_its_probability(answers, golden) -> None:
    rows = golden("language")["rows"]
    assert answers["language"][:, 0].tolist() == [row["language"] for row in rows]
    wanted = [row["language_probability"] for row in rows]
    np.testing.assert_allclose(answers["language_probability"][:, 0], wanted, atol=1e-5)


def test_probabilities_add_up_over_the_labels(answers, placed) -> None:
    labels = placed("zoo/language_encoder/1/labels.txt").read_text().split()
    assert answers["probabilities"].shape[1] == len(labels) == len(set(labels))
    np.testing.assert_allclose(answers["probabilities"].sum(axis=1), 1, atol=1e-5)


def test_padding_changes_nothing(placed, run_graph) -> None:
    graph = placed("zoo/language_encoder/1/model.onnx")
    found = features_of(Automaton.from_file(placed("zoo/language_tokenizer/1/automaton.npz")), ["Guten Morgen"])
    short = {"features": found.features, "counts": found.counts, "sharpness": found.sharpness}
    long = short | {name: np.pad(short[name], ((0, 0), (0, 100))) for name in ("features", "counts")}
    one, other = (run_graph(graph, **feed)["probabilities"] for feed in (short, long))
    np.testing.assert_allclose(one, other, atol=1e-6)
