"""Recall, NDCG, fusion and intervals against values worked out by hand, and fusion against Qdrant's own."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qdrant_client import QdrantClient, models

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> Any:
    """benchmarks/ is a folder of scripts that import each other by name."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("retrieval_measures")


def test_recall_is_one_up_to_the_depth_and_nothing_beyond_or_where_no_answer_was_found(measures) -> None:
    ranks = np.array([1, 5, 6, 0])
    assert measures.recall(ranks, 1).tolist() == [1, 0, 0, 0]
    assert measures.recall(ranks, 5).tolist() == [1, 1, 0, 0]
    assert measures.recall(ranks, 6).tolist() == [1, 1, 1, 0]


def test_ndcg_falls_by_the_logarithm_of_the_rank_and_ends_at_its_depth(measures) -> None:
    # 1 / log2(2), 1 / log2(3), 1 / log2(4), 1 / log2(11), beyond, not found
    expected = [1.0, 0.6309298, 0.5, 0.2890648, 0.0, 0.0]
    assert measures.ndcg(np.array([1, 2, 3, 10, 11, 0])).tolist() == pytest.approx(expected)
    assert measures.ndcg(np.array([3]), depth=2).tolist() == [0.0]


def test_a_rank_counts_from_one(measures) -> None:
    assert [measures.rank_of(answer, [7, 3, 9]) for answer in (7, 9, 8)] == [1, 3, 0]


def test_of_equal_scores_the_first_column_stands_first(measures) -> None:
    assert measures.best(np.array([[0.5, 0.9, 0.5], [1.0, 1.0, 1.0]]), 2) == [[1, 0], [0, 1]]


def test_fusion_adds_up_the_reciprocals_of_ranks(measures) -> None:
    # With k = 2: a = 1/2 + 1/4, b = 1/3 + 1/2, c = 1/4, d = 1/3
    assert measures.fused(["abc", "bda"]) == ["b", "a", "d", "c"]


def test_a_larger_k_trusts_what_both_lists_have_more_than_a_first_place(measures) -> None:
    # k = 2: a = 1/2, c = 1/4 + 1/4, and a was met first; k = 60: a = 1/60, c = 2/62
    lists = ["abc", "dec"]
    assert measures.fused(lists, k=2)[0] == "a"
    assert measures.fused(lists, k=60)[0] == "c"


def test_a_weight_stretches_the_ranks_of_its_list(measures) -> None:
    # Half the weight: the second list's places count as 2, 4; a = 1/2, b = 1/3, c = 1/3, d = 1/5
    assert measures.fused(["ab", "cd"], weights=[1.0, 0.5]) == ["a", "b", "c", "d"]
    # A quarter: c = 1/5, which is behind b
    assert measures.fused(["ab", "cd"], weights=[1.0, 0.25]) == ["a", "b", "c", "d"]
    assert measures.fused(["ab", "cd"], weights=[0.25, 1.0]) == ["c", "d", "a", "b"]


@pytest.mark.parametrize(("k", "weights"), [(2, [1.0, 1.0]), (60, [1.0, 1.0]), (20, [1.0, 0.25])])
def test_fusion_is_that_of_qdrants_query_api(measures, k: int, weights: list[float]) -> None:
    chance = np.random.default_rng(3)
    points, depth = 40, 15
    dense, sparse = chance.normal(size=(points, 8)), chance.random((points, 6))
    asked, words = chance.normal(size=8), chance.random(6)
    client = QdrantClient(":memory:")
    try:
        client.create_collection(
            "docs",
            vectors_config={"dense": models.VectorParams(size=8, distance=models.Distance.DOT)},
            sparse_vectors_config={"sparse": models.SparseVectorParams()},
        )
        both = [
            {"dense": row.tolist(), "sparse": models.SparseVector(indices=list(range(6)), values=weighted.tolist())}
            for row, weighted in zip(dense, sparse, strict=True)
        ]
        client.upsert("docs", [models.PointStruct(id=place, vector=one) for place, one in enumerate(both)])
        found = client.query_points(
            "docs",
            prefetch=[
                models.Prefetch(query=asked.tolist(), using="dense", limit=depth),
                models.Prefetch(
                    query=models.SparseVector(indices=list(range(6)), values=words.tolist()),
                    using="sparse",
                    limit=depth,
                ),
            ],
            query=models.RrfQuery(rrf=models.Rrf(k=k, weights=weights)),
            limit=2 * depth,
        )
    finally:
        client.close()
    lists = [measures.best((asked @ dense.T)[None], depth)[0], measures.best((words @ sparse.T)[None], depth)[0]]
    ours = measures.fused(lists, k, weights)
    assert len(ours) > depth
    assert [point.id for point in found.points] == ours


def test_reranking_orders_the_first_and_leaves_the_others(measures) -> None:
    assert measures.reordered([4, 8, 6, 2], [0.1, 0.9]) == [8, 4, 6, 2]
    assert measures.reordered([4, 8], [0.5, 0.5]) == [4, 8]


def test_the_interval_of_a_share_is_about_as_wide_as_the_normal_one(measures) -> None:
    hits = np.repeat([1.0, 0.0], [320, 80])
    low, high = measures.intervals(hits[:, None])
    # 1.96 * sqrt(0.8 * 0.2 / 400)
    assert low[0] == pytest.approx(0.8 - 0.0392, abs=0.003)
    assert high[0] == pytest.approx(0.8 + 0.0392, abs=0.003)


def test_what_never_differs_has_an_interval_without_width(measures) -> None:
    low, high = measures.intervals(np.full((50, 1), 0.25))
    assert (low[0], high[0]) == pytest.approx((0.25, 0.25))


def test_an_interval_has_its_quantiles_where_all_draws_can_be_counted(measures) -> None:
    # Two questions, one hit: half of the draws have one hit, a quarter none, a quarter two.
    low, high = measures.intervals(np.array([[1.0], [0.0]]))
    assert (low[0], high[0]) == (0.0, 1.0)


def test_columns_see_the_same_questions_and_every_call_the_same_draws(measures) -> None:
    chance = np.random.default_rng(1)
    one = chance.random(60)
    values = np.stack([one, one + 1.0], axis=1)
    low, high = measures.intervals(values, draws=1_500)
    assert low[1] - low[0] == pytest.approx(1.0)
    again = measures.intervals(values, draws=1_500)
    assert low.tolist() == again[0].tolist()
    assert high.tolist() == again[1].tolist()


def test_without_questions_there_is_no_interval(measures) -> None:
    with pytest.raises(ValueError, match="no questions"):
        measures.intervals(np.zeros((0, 1)))
