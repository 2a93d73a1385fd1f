"""The trained rerankers in a real Triton: their answers against the references, whole and in parts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytestmark = pytest.mark.e2e

GOLDEN = Path(__file__).parents[3] / "ensembles" / "golden"
NAMES = ("rerank_cross", "rerank_trees")
QUERY = "program that shows which process uses a file"
DOCUMENTS = [f"tool number {number} lists files, processes and sockets of kind {number % 7}" for number in range(40)]


def scores(zoo: Any, model: str, query: str, documents: list[str]) -> npt.NDArray[Any]:
    answer = zoo.ask(model, [query, *documents], ["score", "tokens"])
    assert answer["score"].shape == answer["tokens"].shape == (1 + len(documents), 1)
    return np.asarray(answer["score"][1:, 0])


@pytest.mark.parametrize("model", NAMES)
def test_scores_are_those_of_the_libraries_that_trained_it(zoo: Any, model: str) -> None:
    for row in json.loads((GOLDEN / f"{model}.json").read_text("utf-8"))["rows"]:
        np.testing.assert_allclose(scores(zoo, model, row["query"], row["documents"]), row["scores"], atol=1e-4)


@pytest.mark.parametrize("model", NAMES)
def test_a_list_cut_in_parts_scores_as_the_whole_does(zoo: Any, model: str) -> None:
    whole = scores(zoo, model, QUERY, DOCUMENTS)
    parts = [scores(zoo, model, QUERY, DOCUMENTS[start : start + 7]) for start in range(0, len(DOCUMENTS), 7)]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-4)
    assert ((whole >= 0) & (whole <= 1)).all()


@pytest.mark.parametrize("model", NAMES)
def test_lists_of_many_callers_at_once_keep_their_own_scores(zoo: Any, model: str) -> None:
    lists = [[*DOCUMENTS[: 1 + number % 9], "a long text about files " * (number + 1)] for number in range(12)]
    alone = [scores(zoo, model, QUERY, documents) for documents in lists]
    together = zoo.at_once([lambda documents=documents: scores(zoo, model, QUERY, documents) for documents in lists])
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-4)


@pytest.mark.parametrize("model", NAMES)
def test_a_query_alone_and_an_empty_document_are_answered(zoo: Any, model: str) -> None:
    assert scores(zoo, model, QUERY, []).shape == (0,)
    assert np.isfinite(scores(zoo, model, "", ["", "x"])).all()
