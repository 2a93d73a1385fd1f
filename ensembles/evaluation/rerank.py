"""Measures every reranker of the zoo, by the code and the graphs that serve it, on questions nothing was chosen by.

    PYTHONPATH=ensembles python -m evaluation.rerank FOLDER --zoo model_repository/zoo

FOLDER is what `python -m evaluation.retrieval_data FOLDER` wrote. Each order is over the 20 passages that the
bi-encoder finds first; a question whose answer is not among them counts 0 for all. Prints a table per set: MRR@10, the
difference to the bi-encoder with its 95% bootstrap interval (10,000 draws of questions), and how often the answer
stands first. The weights of the two blends are chosen on the dev questions of `debian` alone.
"""

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluation.bench import Bench, Models, Search, open_bench
from evaluation.measures import interval, reciprocal_ranks
from evaluation.retrieval_data import Split
from zooserve_ensembles.buckets import BUCKETS, padded
from zooserve_ensembles.late_interaction import late_interaction_scores
from zooserve_ensembles.pairs import pair_rows
from zooserve_ensembles.ranking_features import rank_features

Scores = npt.NDArray[np.float64]
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)


# fmt: off
COMMON = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "how", "i", "if", "in", "is",
    "it", "my", "not", "of", "on", "or", "that", "the", "there", "this", "to", "was", "what", "when", "where", "which",
    "why", "with", "you", "your",
))
# fmt: on


class Bm25:
    """Okapi BM25 over the words of a corpus, without the commonest ones."""

    K1, B = 1.2, 0.75

    def __init__(self, passages: Sequence[str]) -> None:
        self._counts = [Counter(self._words(passage)) for passage in passages]
        self._lengths = np.array([counts.total() for counts in self._counts], float)
        holders = Counter(chain.from_iterable(self._counts))
        size = len(passages)
        self._rarity = {word: math.log(1 + (size - n + 0.5) / (n + 0.5)) for word, n in holders.items()}
        self._norms = self.K1 * (1 - self.B + self.B * self._lengths / self._lengths.mean())

    def scores(self, question: str, places: Sequence[int] | None = None) -> Scores:
        """Of the passages at these places, or of all."""
        words = [word for word in self._words(question) if word in self._rarity]
        which = range(len(self._counts)) if places is None else places
        return np.array(
            [
                sum(
                    self._rarity[word] * (count := self._counts[place][word]) / (count + self._norms[place])
                    for word in words
                    if word in self._counts[place]
                )
                for place in which
            ],
            float,
        )

    def _words(self, text: str) -> list[str]:
        words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text.lower()).split()
        return [word for word in words if word not in COMMON]


@dataclass(frozen=True)
class Scored:
    """What every ranker says of the candidates of each question, [questions, candidates], and what it took."""

    relevant: npt.NDArray[np.bool_]
    scores: Mapping[str, Scores]
    cpu_ms_per_pair: Mapping[str, float]


class Rankers:
    """The zoo's rerankers, from what `zooserve fetch` placed."""

    def __init__(self, zoo: Path) -> None:
        from tokenizers import Tokenizer

        self._cross = _session(zoo / "rerank_cross_encoder/1/model.onnx")
        self._trees = _session(zoo / "rerank_trees_ranker/1/model.onnx")
        self._rarity = np.load(zoo / "rerank_trees_features/1/rarity.npy").astype(np.float32)
        self._tokenizer = Tokenizer.from_file(str(zoo / "rerank_cross_tokenizer/1/tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def of(self, bench: Bench) -> Mapping[str, Callable[[Search], Scores]]:
        """Every order, by its name in the table."""
        words = Bm25(bench.passages)
        vectors, asked = bench.passage_texts.vectors, bench.question_texts.vectors
        return {
            "bi-encoder": lambda search: vectors[list(search.found)] @ asked[search.question],
            "BM25 of these 20": lambda search: words.scores(search.text, search.found),
            "rerank": lambda search: self._late_interaction(bench, search),
            "rerank_cross": lambda search: self._pairs(bench, search),
            "rerank_trees": lambda search: self._boosted(bench, search),
        }

    def _late_interaction(self, bench: Bench, search: Search) -> Scores:
        _, mask, tokens, vectors = bench.rows(search)
        return late_interaction_scores(tokens, mask, vectors)[1:, 0].astype(float)

    def _boosted(self, bench: Bench, search: Search) -> Scores:
        features = rank_features(*bench.rows(search), self._rarity)
        return np.asarray(self._trees.run(["score"], {"features": features})[0][1:, 0], float)

    def _pairs(self, bench: Bench, search: Search) -> Scores:
        documents = [bench.passages[place] for place in search.found]
        rows, types = pair_rows(self._tokenizer, search.text, documents, BUCKETS[-1])
        ids, mask, _ = padded(rows)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": padded(types)[0]}
        return np.asarray(self._cross.run(["score"], feed)[0][1:, 0], float)


def scored(bench: Bench, split: Split, rankers: Rankers) -> Scored:
    """Every ranker over the questions of one split."""
    searches = list(bench.searches(split))
    scores, times = {}, {}
    for name, score in rankers.of(bench).items():
        started = time.process_time()
        scores[name] = np.array([score(search) for search in searches])
        times[name] = (time.process_time() - started) * 1e3 / scores[name].size
    return Scored(np.array([search.relevant for search in searches]), scores, times)


def blends(of: Scored) -> Mapping[str, Callable[[float], Scores]]:
    """Sums of standardised scores, by the weight of the second."""
    names = {
        "bi-encoder + w BM25": ("bi-encoder", "BM25 of these 20"),
        "rerank + w rerank_cross": ("rerank", "rerank_cross"),
    }

    def blend(one: str, other: str) -> Callable[[float], Scores]:
        return lambda weight: _standard(of.scores[one]) + weight * _standard(of.scores[other])

    return {name: blend(*parts) for name, parts in names.items()}


def chosen_weights(dev: Scored) -> dict[str, float]:
    """The weight of each blend that is best on the dev questions."""
    return {
        name: max(WEIGHTS, key=lambda weight: float(reciprocal_ranks(blend(weight), dev.relevant).mean()))
        for name, blend in blends(dev).items()
    }


def rows(found: Scored, weights: Mapping[str, float], whole: npt.NDArray[np.float64]) -> Iterator[dict[str, Any]]:
    """The table's rows: what each order reaches, and by how much that differs from the bi-encoder."""
    ranks = {name: reciprocal_ranks(scores, found.relevant) for name, scores in found.scores.items()}
    for name, blend in blends(found).items():
        ranks[f"{name}, w = {weights[name]}"] = reciprocal_ranks(blend(weights[name]), found.relevant)
    ranks["BM25 of all passages"] = whole
    base = ranks["bi-encoder"]
    for name, values in ranks.items():
        low, high = interval(values - base)
        yield {
            "order": name,
            "mrr@10": round(float(values.mean()), 3),
            "difference": round(float((values - base).mean()), 3),
            "interval": [round(low, 3), round(high, 3)],
            "first": round(float((values == 1).mean()), 3),
            "cpu_ms_per_pair": found.cpu_ms_per_pair.get(name),
        }


def by_words_alone(bench: Bench, split: Split) -> npt.NDArray[np.float64]:
    """Reciprocal ranks of BM25 over all passages, which needs no first search."""
    words = Bm25(bench.passages)
    ranks = []
    for search in bench.searches(split):
        scores = words.scores(search.text)
        relevant = np.arange(len(scores)) == search.answer
        ranks.append(reciprocal_ranks(scores[None], relevant[None]))
    return np.concatenate(ranks)


def _standard(scores: Scores) -> Scores:
    spread = scores.std(axis=1, keepdims=True)
    return np.asarray((scores - scores.mean(axis=1, keepdims=True)) / np.maximum(spread, 1e-9))


def _session(graph: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _table(name: str, found: Scored, lines: Sequence[Mapping[str, Any]]) -> str:
    recall = found.relevant.any(axis=1).mean()
    head = f"{name}: {len(found.relevant)} questions, answer among the 20: {recall:.3f}\n\n"
    head += "| order | MRR@10 | difference [95% interval] | first | CPU-ms a pair |\n|---|---|---|---|---|\n"
    body = [
        f"| {line['order']} | {line['mrr@10']:.3f} | {line['difference']:+.3f} "
        f"[{line['interval'][0]:+.3f}, {line['interval'][1]:+.3f}] | {line['first']:.3f} | "
        f"{_told(line['cpu_ms_per_pair'])} |"
        for line in lines
    ]
    return head + "\n".join(body) + "\n\n"


def _told(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:.2f}"


def main() -> None:
    """Choose the weights on dev, print a table per test set."""
    parser = argparse.ArgumentParser(description="Measure the zoo's rerankers.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--zoo", type=Path, default=Path("model_repository/zoo"), help="with the weights fetched")
    parser.add_argument("--output", type=Path, help="the same as JSON")
    arguments = parser.parse_args()
    rankers, models = Rankers(arguments.zoo), Models.below(arguments.zoo)
    debian = open_bench(arguments.folder, "debian", models)
    weights = chosen_weights(scored(debian, "dev", rankers))
    report = {}
    for bench in (debian, open_bench(arguments.folder, "faq", models)):
        found = scored(bench, "test", rankers)
        report[bench.name] = list(rows(found, weights, by_words_alone(bench, "test")))
        sys.stdout.write(_table(bench.name, found, report[bench.name]))
        sys.stdout.flush()
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
