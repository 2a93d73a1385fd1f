"""How well do the ways of searching find what was asked for? Recall and NDCG, on real questions with known answers.

    python benchmarks/retrieval_quality.py FOLDER [--router URL] [--record FILE]
    python benchmarks/retrieval_quality.py --judge benchmarks/recorded/retrieval_quality.json

Makes the sets in FOLDER (`evaluation.retrieval_data`: Debian 12's package sources) and keeps there what the platform
answered, so that an interrupted run goes on where it was. The platform needs
`--models embed,embed_int8,embed_multilingual,embed_sparse,rerank,rerank_trees,rerank_cross`. Search is exact: all
products, by numpy.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from load import add_addresses
from retrieval_asked import Asked, Kept, sparse_products
from retrieval_measures import best, fused, intervals, ndcg, rank_of, recall, reordered
from retrieval_unserved import Unserved
from tokenizers import Tokenizer

from evaluation.retrieval_data import BUILDERS, RetrievalSet, Split, build, read_set
from zooserve import Zoo

DEPTH = 100
"""Passages that a search finds, of each vector: Qdrant's `prefetch` limit in a hybrid one."""
RERANKED = 20
"""Of those, the first that a reranker orders anew."""
TOKENS = 256
DEPTHS = (1, 5, 10, 20)
TOKENIZER = Path(__file__).parents[1] / "model_repository/zoo/embed_tokenizer/1/tokenizer.json"


@dataclass(frozen=True)
class Sample:
    """Which questions and passages of a set are taken, by hash, and the SHA-256 of what the record was made from."""

    questions: Mapping[Split, int]
    others: int
    """Passages that answer none of the questions."""
    sha256: str


SAMPLES: Mapping[str, Sample] = {
    "faq": Sample({"test": 300}, 700, "986c706fd174fea49abf1859d9ba41d12e59504bed71112be0caeb6cd2b7353b"),
    "debian": Sample(
        {"test": 300, "dev": 100}, 800, "2a8d9c3be556a1db616bcdeda2525d61d28f8bde36b81892da33b90da8a8f163"
    ),
    "debian_de": Sample({"test": 200}, 300, "6e804829d11311cbc2666d0d62a82902574fff0091f83bb398ff904da28b8997"),
    "manuals": Sample({"dev": 80}, 220, "28006bf0e927ad936565f158c08c56ac95a75a58470b642771df1bb427fba890"),
}
TESTS: Sequence[tuple[str, Split]] = (("faq", "test"), ("debian", "test"), ("debian_de", "test"))
DEVS: Sequence[tuple[str, Split]] = (("debian", "dev"), ("manuals", "dev"))
"""Questions by which something may be chosen; none of them is a test question."""
FUSIONS: Mapping[str, tuple[int, float]] = {
    f"k={k}, sparse {weight:g}": (k, weight) for k in (2, 20, 60) for weight in (1.0, 0.5, 0.25)
}
"""Ways to fuse that are tried on dev: RRF's k, and the sparse list's weight beside the dense one's 1."""
QDRANTS = "k=2, sparse 1"
"""The one that Qdrant takes when nothing is said."""
PAIRS = (
    ("embed_int8", "embed"),
    ("embed_multilingual", "embed"),
    ("embed + rerank", "embed"),
    ("embed + rerank_trees", "embed"),
    ("embed + rerank_cross", "embed"),
    ("embed + rerank_trees", "embed + rerank"),
    ("embed + rerank_cross", "embed + rerank"),
    ("hybrid", "embed"),
    ("hybrid, chosen", "embed"),
    ("hybrid + rerank", "embed + rerank"),
    ("hybrid, chosen + rerank", "embed + rerank"),
)
"""What is compared on the same questions, with what."""

Ranks = dict[str, list[int]]
"""Of each way, the rank of every question's answer; 0 beyond DEPTH."""


class Search:
    """The rankings of one set's passages for the questions of one split."""

    def __init__(self, found: RetrievalSet, split: Split, asked: Asked, unserved: Unserved | None = None) -> None:
        questions = found.of_split(split)
        self.differences: dict[str, list[float]] = {}
        """By reranker: of scores without a server from those of the route, where both are there."""
        self._asked = asked
        self._unserved = unserved
        self._passages = found.passages
        self._queries = [question.text for question in questions]
        self._answers = [question.passage for question in questions]
        self._rankings: dict[str, list[list[int]]] = {}

    def ranks(self) -> Ranks:
        """Of every way so far."""
        return {
            way: [rank_of(answer, ranking) for answer, ranking in zip(self._answers, rankings, strict=True)]
            for way, rankings in self._rankings.items()
        }

    def by(self, model: str) -> None:
        """By one embedding model alone."""
        if model == "embed_sparse":
            scores = sparse_products(
                self._asked.sparse(model, self._queries), self._asked.sparse(model, self._passages)
            )
        else:
            queries = self._asked.dense(model, self._queries, "query")
            scores = queries @ self._asked.dense(model, self._passages, "passage").T
        self._rankings[model] = best(scores, DEPTH)

    def fuse(self, way: str, k: int, weight: float) -> None:
        """By what `embed` and `embed_sparse` found, fused."""
        self._rankings[way] = [
            fused(both, k, [1.0, weight])[:DEPTH]
            for both in zip(self._rankings["embed"], self._rankings["embed_sparse"], strict=True)
        ]

    def rerank(self, way: str, model: str) -> None:
        """What was found, its first RERANKED ordered by a reranker."""
        rankings = self._rankings[way]
        documents = [[self._passages[place] for place in ranking[:RERANKED]] for ranking in rankings]
        scores = (self._unserved or self._asked).relevances(model, self._queries, documents)
        if self._unserved:
            self.differences.setdefault(model, []).extend(self._from_the_route(model, documents, scores))
        self._rankings[f"{way} + {model}"] = [reordered(*both) for both in zip(rankings, scores, strict=True)]

    def _from_the_route(
        self, model: str, documents: Sequence[Sequence[str]], scores: Sequence[Sequence[float]]
    ) -> Iterator[float]:
        for query, listed, told in zip(self._queries, documents, scores, strict=True):
            known = self._asked.known(model, query, listed)
            yield from (abs(known[one] - score) for one, score in zip(listed, told, strict=True) if one in known)


def sampled(folder: Path, name: str, *, other_texts: bool) -> tuple[RetrievalSet, str]:
    """The set's sample, its passages cut to what `embed` reads, and its SHA-256. Exits if SAMPLES has another."""
    whole = read_set(folder, name)
    found = whole.sampled(SAMPLES[name].questions, SAMPLES[name].others)
    cut = RetrievalSet(name, found.made_from, list(within_tokens(found.passages)), found.questions)
    content = json.dumps([list(cut.passages), [asdict(question) for question in cut.questions]], ensure_ascii=False)
    digest = hashlib.sha256(content.encode()).hexdigest()
    if digest != SAMPLES[name].sha256 and not other_texts:
        sys.exit(
            f"{name} has SHA-256 {digest}, the record's has {SAMPLES[name].sha256}: --other-texts measures it anyway"
        )
    return cut, digest


def within_tokens(texts: Sequence[str]) -> Iterator[str]:
    """The texts, those that are too long cut behind the last whole word that fits: every model then reads the same."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for text in texts:
        encoding = tokenizer.encode(text)
        if len(encoding.ids) <= TOKENS:
            yield text
        else:  # the last of those that fit makes room for [SEP]
            end = encoding.token_to_word(TOKENS - 1)
            starts = encoding.word_to_chars(end)
            yield text[: starts[0]].rstrip()


def measured(folder: Path, asked: Asked, zoo: Path | None, *, other_texts: bool) -> dict[str, Any]:
    """Everything, as it is recorded; rerankers without a server where their graphs are given."""
    sets, searches = {}, {}
    for name, split in (*DEVS, *TESTS):
        found, digest = sampled(folder, name, other_texts=other_texts)
        sets[name] = {"sha256": digest, "made_from": dict(found.made_from), "passages": len(found.passages)}
        reranked = split == "test" and name != "debian_de"
        unserved = Unserved(folder / "unserved", zoo, found) if zoo and reranked else None
        searches[f"{name} {split}"] = Search(found, split, asked, unserved)
    for key in [f"{name} {split}" for name, split in DEVS]:
        for model in ("embed", "embed_sparse"):
            searches[key].by(model)
        for fusion, how in FUSIONS.items():
            searches[key].fuse(fusion, *how)
    chosen = best_on_dev({key: searches[key].ranks() for key in searches if key.endswith("dev")}, tuple(FUSIONS))
    for name, split in TESTS:
        every_way(searches[f"{name} {split}"], FUSIONS[chosen] if name != "debian_de" else None)
    from_the_route: dict[str, list[float]] = {}
    for search in searches.values():
        for model, differences in search.differences.items():
            from_the_route.setdefault(model, []).extend(differences)
    return {
        "models": asked.models,
        "from_the_route": {
            model: {"pairs": len(all_of), "largest": max(all_of, default=0.0)}
            for model, all_of in from_the_route.items()
        },
        "sets": sets,
        "fusion": chosen,
        "ranks": {key: search.ranks() for key, search in searches.items()},
    }


def every_way(search: Search, chosen: tuple[int, float] | None) -> None:
    """What is measured on test questions. Without a fusion they are German, and only dense models are tried."""
    for model in ("embed", "embed_multilingual", *(("embed_int8", "embed_sparse") if chosen else ())):
        search.by(model)
    if chosen is None:
        return
    search.fuse("hybrid", *FUSIONS[QDRANTS])
    search.fuse("hybrid, chosen", *chosen)
    for way, reranker in (
        ("embed", "rerank"),
        ("hybrid", "rerank"),
        ("hybrid, chosen", "rerank"),
        ("embed", "rerank_trees"),
        ("embed", "rerank_cross"),
    ):
        search.rerank(way, reranker)


def best_on_dev(ranks: Mapping[str, Ranks], ways: Sequence[str]) -> str:
    """The way with the best NDCG@10 in the mean of the dev sets; of equals the first."""
    return max(ways, key=lambda way: _dev_mean(ranks, way))


def _dev_mean(ranks: Mapping[str, Ranks], way: str) -> float:
    return float(np.mean([ndcg(np.array(of[way])).mean() for key, of in ranks.items() if key.endswith("dev")]))


def report(record: Mapping[str, Any]) -> str:
    """The tables, in Markdown."""
    parts = [_choice(record)]
    for name, split in TESTS:
        ranks = record["ranks"][f"{name} {split}"]
        questions = len(ranks["embed"])
        title = f"### {name}: {questions} questions, {record['sets'][name]['passages']:,} passages"
        parts += [title, _levels(ranks), _differences(ranks)]
    parts += [_unserved(record["from_the_route"])] if record["from_the_route"] else []
    return "\n\n".join(parts) + "\n"


def _unserved(from_the_route: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [[model, f"{of['pairs']:,}", f"{of['largest']:.1g}"] for model, of in from_the_route.items()]
    titles = ["reranker, run without a server", "pairs also asked through the route", "largest difference"]
    return _table(titles, rows)


def _levels(ranks: Ranks) -> str:
    ways = list(ranks)
    columns = [(f"recall@{depth}", {way: recall(np.array(ranks[way]), depth) for way in ways}) for depth in DEPTHS]
    columns.append(("NDCG@10", {way: ndcg(np.array(ranks[way])) for way in ways}))
    cells = [_with_intervals([values[way] for way in ways], "{:.3f} [{:.3f}, {:.3f}]") for _, values in columns]
    return _table(["way", *(title for title, _ in columns)], [list(row) for row in zip(ways, *cells, strict=True)])


def _differences(ranks: Ranks) -> str:
    pairs = [pair for pair in PAIRS if set(pair) <= set(ranks)]
    columns = []
    for measure in (lambda of: ndcg(of), lambda of: recall(of, 1), lambda of: recall(of, 10)):
        values = [measure(np.array(ranks[one])) - measure(np.array(ranks[other])) for one, other in pairs]
        columns.append(_with_intervals(values, "{:+.3f} [{:+.3f}, {:+.3f}]"))
    names = [f"{one} − {other}" for one, other in pairs]  # noqa: RUF001
    rows = [list(row) for row in zip(names, *columns, strict=True)]
    return _table(["difference on the same questions", "NDCG@10", "recall@1", "recall@10"], rows)


def _with_intervals(values: Sequence[Any], form: str) -> list[str]:
    rows = np.array(values).T
    return [form.format(*three) for three in zip(rows.mean(axis=0), *intervals(rows), strict=True)]


def _choice(record: Mapping[str, Any]) -> str:
    dev = {key: ranks for key, ranks in record["ranks"].items() if key.endswith("dev")}
    rows = [
        [way, *(f"{ndcg(np.array(ranks[way])).mean():.3f}" for ranks in dev.values()), f"{_dev_mean(dev, way):.3f}"]
        for way in ("embed", "embed_sparse", *FUSIONS)
    ]
    titles = [f"{key}, {len(ranks['embed'])} questions" for key, ranks in dev.items()]
    return _table(["NDCG@10 on dev", *titles, "mean"], rows) + f"\n\nChosen on dev: {record['fusion']}."


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(line)} |" for line in (titles, *rows))
    return "\n".join([head, "|---" * len(titles) + "|", *body])


def main() -> None:
    """Measure and print, or print what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where sets and answers are kept")
    parser.add_argument("--judge", type=Path, help="a recorded run")
    parser.add_argument("--unserved", type=Path, metavar="ZOO", help="rerank by the graphs below model_repository/zoo")
    parser.add_argument("--record", type=Path, help="write the run there")
    parser.add_argument("--other-texts", action="store_true", help="measure also if the archive has changed")
    add_addresses(parser, needed=False)
    given = parser.parse_args()
    if given.judge:
        print(report(json.loads(given.judge.read_text(encoding="utf-8"))), end="")
        return
    if given.folder is None or given.router is None:
        parser.error("say FOLDER and, where no platform runs from the state folder, --router")
    given.folder.mkdir(parents=True, exist_ok=True)
    build(given.folder, [name for name in SAMPLES if name in BUILDERS])
    with closing(Kept(given.folder / "answers.sqlite")) as kept, Zoo(given.router) as zoo:
        record = measured(given.folder, Asked(zoo, kept), given.unserved, other_texts=given.other_texts)
    if given.record:
        given.record.write_text(json.dumps(record, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
    print(report(record), end="")


if __name__ == "__main__":
    main()
