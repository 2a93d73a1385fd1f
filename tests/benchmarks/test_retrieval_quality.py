"""What is searched, how answers are kept, and that the docs say what was recorded."""

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from ruamel.yaml import YAML

from evaluation.retrieval_data import Question, RetrievalSet

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "benchmarks/recorded/retrieval_quality.json"


@pytest.fixture
def quality(monkeypatch: pytest.MonkeyPatch) -> Any:
    """benchmarks/ is a folder of scripts that import each other by name."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("retrieval_quality")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("retrieval_asked")


class Answers:
    """Instead of a platform: vectors and scores that are known beforehand."""

    DENSE: ClassVar = {"q": (1.0, 0.0), "near": (0.9, 0.1), "nearer": (1.0, 0.0), "far": (0.0, 1.0)}

    def dense(self, model: str, texts: Sequence[str], input_type: str) -> Any:
        assert input_type == ("query" if texts == ["q"] else "passage")
        return np.array([self.DENSE[text] for text in texts])

    def sparse(self, model: str, texts: Sequence[str]) -> Any:
        weights = {"q": 1.0, "near": 0.5, "nearer": 0.1, "far": 2.0}
        return [(np.array([7]), np.array([weights[text]])) for text in texts]

    def relevances(self, model: str, queries: Sequence[str], documents: Sequence[Sequence[str]]) -> Any:
        assert queries == ["q"]
        return [[float(len(document)) for document in listed] for listed in documents]


@pytest.fixture
def search(quality) -> Any:
    found = RetrievalSet(
        "birds", {}, ["near", "far", "nearer"], [Question("q", 0, "test"), Question("other", 1, "dev")]
    )
    return quality.Search(found, "test", Answers())


def test_each_way_ranks_the_answers_of_its_split(search) -> None:
    search.by("embed")
    search.by("embed_sparse")
    search.fuse("hybrid", 2, 1.0)
    search.rerank("embed", "rerank")
    assert search.ranks() == {
        "embed": [2],  # nearer, near, far
        "embed_sparse": [2],  # far, near, nearer
        "hybrid": [3],  # nearer 1/2 + 1/4, far 1/4 + 1/2, near 1/3 + 1/3
        "embed + rerank": [2],  # by length: nearer, near, far
    }


def test_only_the_first_are_reranked(search, quality, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "RERANKED", 1)
    search.by("embed_sparse")
    search.rerank("embed_sparse", "rerank")
    assert search.ranks()["embed_sparse + rerank"] == [2]


def test_an_answer_beyond_the_depth_of_the_search_is_not_found(
    search, quality, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "DEPTH", 1)
    search.by("embed")
    assert search.ranks() == {"embed": [0]}


def test_the_choice_is_made_by_dev_questions_alone(quality) -> None:
    ranks = {
        "a dev": {"one": [1, 1], "two": [2, 2]},
        "b dev": {"one": [3], "two": [3]},
        "b test": {"one": [0, 0, 0], "two": [1, 1, 1]},
    }
    assert quality.best_on_dev(ranks, ("two", "one")) == "one"


def test_each_dev_set_counts_the_same_however_many_questions_it_has(quality) -> None:
    ranks = {"a dev": {"one": [1] * 9, "two": [2] * 9}, "b dev": {"one": [0], "two": [1]}}
    assert quality.best_on_dev(ranks, ("one", "two")) == "two"


def zoo_of(calls: list[list[str]]) -> Any:
    def embed(texts: list[str], **_: Any) -> Any:
        calls.append(texts)
        vectors = np.array([[len(text), 0.5] for text in texts], np.float32)
        return SimpleNamespace(numpy=lambda: vectors)

    def rerank(query: str, documents: list[str], **_: Any) -> Any:
        calls.append(documents)
        return [SimpleNamespace(document=text, score=len(text) / 10) for text in reversed(documents)]

    card = SimpleNamespace(version="1", details={"embedding_space": "abc"})
    return SimpleNamespace(model=lambda name: card, embed=embed, rerank=rerank)


def test_a_text_is_asked_for_once_even_by_the_next_run(asked, tmp_path: Path) -> None:
    calls: list[list[str]] = []
    for texts in (["a", "bb", "a"], ["bb", "ccc"]):
        kept = asked.Kept(tmp_path / "answers.sqlite")
        try:
            rows = asked.Asked(zoo_of(calls), kept).dense("embed", texts, "passage")
        finally:
            kept.close()
        assert rows.tolist() == [[len(text), 0.5] for text in texts]
    assert calls == [["a", "bb"], ["ccc"]]


def test_queries_and_passages_are_kept_apart(asked, tmp_path: Path) -> None:
    calls: list[list[str]] = []
    kept = asked.Kept(tmp_path / "answers.sqlite")
    try:
        answers = asked.Asked(zoo_of(calls), kept)
        answers.dense("embed", ["a"], "query")
        answers.dense("embed", ["a"], "passage")
    finally:
        kept.close()
    assert calls == [["a"], ["a"]]


def test_scores_are_those_of_their_documents_whatever_the_order_of_the_answer(asked, tmp_path: Path) -> None:
    calls: list[list[str]] = []
    kept = asked.Kept(tmp_path / "answers.sqlite")
    try:
        answers = asked.Asked(zoo_of(calls), kept)
        assert answers.relevances("rerank", ["q"], [["a", "bb"]]) == [[0.1, 0.2]]
        assert answers.relevances("rerank", ["q"], [["ccc", "a"]]) == [[pytest.approx(0.3), 0.1]]
    finally:
        kept.close()
    assert calls == [["a", "bb"], ["ccc"]]


def test_sparse_products_are_over_the_words_that_both_have(asked) -> None:
    one, other = (np.array([1, 4]), np.array([2.0, 3.0])), (np.array([4, 9]), np.array([0.5, 7.0]))
    assert asked.sparse_products([one], [other, one], words=10).tolist() == [[1.5, 13.0]]


def test_the_page_has_the_tables_of_the_recorded_run(quality) -> None:
    page = (ROOT / "docs/quality.md").read_text(encoding="utf-8")
    tables = quality.report(json.loads(RECORDED.read_text(encoding="utf-8")))
    assert tables.strip() in page


def test_the_record_was_made_from_the_samples_that_the_script_takes(quality) -> None:
    sets = json.loads(RECORDED.read_text(encoding="utf-8"))["sets"]
    assert {name: made["sha256"] for name, made in sets.items()} == {
        name: sample.sha256 for name, sample in quality.SAMPLES.items()
    }


def test_a_long_passage_is_cut_behind_the_last_word_that_fits(quality) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(quality.TOKENIZER))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    words = [f"pterodactyl{number}" for number in range(200)]
    (cut, short) = quality.within_tokens([" ".join(words), "a duck"])
    kept = cut.split(" ")
    assert kept == words[: len(kept)]
    assert len(tokenizer.encode(cut).ids) <= quality.TOKENS
    assert len(tokenizer.encode(" ".join(words[: len(kept) + 1])).ids) > quality.TOKENS
    assert short == "a duck"


def test_scores_without_a_server_are_held_against_those_of_the_route(quality) -> None:
    class Route(Answers):
        def known(self, model: str, query: str, documents: Sequence[str]) -> dict[str, float]:
            return {"near": 4.5}

    found = RetrievalSet("birds", {}, ["near", "far", "nearer"], [Question("q", 0, "test")])
    search = quality.Search(found, "test", Route(), Answers())
    search.by("embed")
    search.rerank("embed", "rerank")
    assert search.differences == {"rerank": [0.5]}
    assert search.ranks()["embed + rerank"] == [2]


def test_scores_without_a_server_are_relevances_as_the_catalogue_has_them(quality, tmp_path: Path) -> None:
    unserved = importlib.import_module("retrieval_unserved")
    zoo = YAML(typ="safe").load((ROOT / "zoo.yaml").read_text(encoding="utf-8"))["models"]
    declared = {model["name"]: model.get("best_score", 1.0) for model in zoo if model["task"] == "rerank"}
    assert declared == unserved.BEST_SCORES

    question = "Which birds swim on ponds?"
    found = RetrievalSet("birds", {}, ["A tax form.", "Ducks swim on ponds."], [Question(question, 1, "test")])
    scores = unserved.Unserved(tmp_path, ROOT / "model_repository/zoo", found)
    for model in declared:
        ((duck, form),) = scores.relevances(model, [question], [list(reversed(found.passages))])
        assert 0 <= form < duck <= 1
