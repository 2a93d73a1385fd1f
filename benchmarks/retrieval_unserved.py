"""The zoo's rerankers by the graphs and the code that serve them, without a server.

The route encodes a passage for each question that finds it; here it is encoded once. The scores are the same, and
`retrieval_quality.py` compares those that it has of both.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluation.bench import Bench, Models, Search
from evaluation.encoded import encoded
from evaluation.rerank import Rankers
from evaluation.retrieval_data import RetrievalSet

__all__ = ["BEST_SCORES", "Unserved"]

BEST_SCORES: Mapping[str, float] = {"rerank": 2.0, "rerank_trees": 1.0, "rerank_cross": 1.0}
"""What a graph's score is divided by to be the route's relevance: `best_score` of zoo.yaml."""


class Unserved:
    """Relevances of one set's passages. Keeps the encoded texts in a folder."""

    def __init__(self, folder: Path, zoo: Path, found: RetrievalSet) -> None:
        models = Models.below(zoo)
        texts = [question.text for question in found.questions]
        self._rankers = Rankers(zoo)
        self._bench = Bench(
            found.name,
            found.passages,
            found.questions,
            encoded(folder / f"{found.name}-passages", found.passages, models.graph, models.tokenizer),
            encoded(folder / f"{found.name}-questions", texts, models.graph, models.tokenizer),
        )
        self._passages = {text: place for place, text in enumerate(found.passages)}
        self._questions = {text: place for place, text in enumerate(texts)}

    def relevances(self, model: str, queries: Sequence[str], documents: Sequence[Sequence[str]]) -> list[list[float]]:
        """A reranker's score of each query's documents, from 0 to 1 as the route has it."""
        scores, best = self._rankers.of(self._bench)[model], BEST_SCORES[model]
        return [
            [
                min(max(score / best, 0.0), 1.0)
                for score in scores(Search(self._questions[query], query, -1, [self._passages[one] for one in listed]))
            ]
            for query, listed in zip(queries, documents, strict=True)
        ]
