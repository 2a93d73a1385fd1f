"""The small cross-encoder's graph against PyTorch's answers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from zooserve_ensembles.buckets import BUCKETS, padded
from zooserve_ensembles.graphs.cross_encoder import HEAD
from zooserve_ensembles.pairs import pair_rows


@pytest.fixture
def score(placed: Callable[[str], Path], run_graph: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """Scores documents against a query, as the ensemble's two stages do."""
    graph = placed("zoo/rerank_cross_encoder/1/model.onnx")
    tokenizer = Tokenizer.from_file(str(placed("zoo/rerank_cross_tokenizer/1/tokenizer.json")))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def scores(query: str, documents: list[str]) -> Any:
        rows, types = pair_rows(tokenizer, query, documents, BUCKETS[-1])
        ids, mask, _ = padded(rows)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": padded(types)[0]}
        return run_graph(graph, **feed)["score"][1:, 0]

    return scores


def test_scores_are_those_of_the_model_that_was_trained(score: Any, golden: Any) -> None:
    for row in golden("rerank_cross")["rows"]:
        np.testing.assert_allclose(score(row["query"], row["documents"]), row["scores"], atol=1e-5)


def test_a_pair_scores_the_same_alone_as_beside_a_long_one(score: Any) -> None:
    query, document = "how to trace system calls", "strace prints the system calls of a process"
    alone = score(query, [document])
    together = score(query, [document, "a text about nothing " * 80])
    np.testing.assert_allclose(alone[0], together[0], atol=1e-6)


def test_the_committed_part_is_small_in_halves_and_says_how_it_came_about() -> None:
    assert HEAD.stat().st_size < 1_000_000
    with np.load(HEAD, allow_pickle=False) as head:
        assert {head[name].dtype for name in head.files} == {np.dtype(np.float16)}
        assert not any("word_embeddings" in name for name in head.files)
    about = json.loads(HEAD.with_suffix(".json").read_text("utf-8"))
    assert about["epochs"][-1]["dev_mrr@10"]["debian"] > 0.8
    assert len(about["data"]["manuals"]) == 6
