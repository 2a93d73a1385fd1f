"""A retrieval set made ready: a sample of it, encoded, and for each question the passages that a first search finds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from evaluation.encoded import Encoded, Rows, batch, encoded
from evaluation.retrieval_data import Question, Split, read_set

__all__ = ["CANDIDATES", "Bench", "Models", "Search", "open_bench"]

CANDIDATES = 20
SIZES: Mapping[str, Mapping[Split, int]] = {
    "debian": {"test": 1_000, "dev": 500, "train": 4_500},
    "manuals": {"dev": 116, "train": 1_117},
    "faq": {"test": 10_000},
}
"""Questions at most, of each split."""
OTHERS: Mapping[str, int] = {"debian": 0, "manuals": 0, "faq": 1_600}
"""Passages at most that answer none of the questions and are searched with those that do."""


@dataclass(frozen=True)
class Models:
    """Where `zooserve fetch` has placed what texts are encoded with."""

    graph: Path
    tokenizer: Path

    @classmethod
    def below(cls, repository: Path) -> "Models":
        """The ones that `rerank` serves with."""
        return cls(repository / "rerank_encoder/1/model.onnx", repository / "rerank_tokenizer/1/tokenizer.json")


@dataclass(frozen=True)
class Search:
    """A question, and the places of the passages that the bi-encoder found for it, best first."""

    question: int
    text: str
    answer: int
    found: Sequence[int]

    @property
    def relevant(self) -> npt.NDArray[np.bool_]:
        """Which of the found passages is the answer."""
        return np.array(self.found) == self.answer


@dataclass(frozen=True)
class Bench:
    """Questions and passages of one set, encoded."""

    name: str
    passages: Sequence[str]
    questions: Sequence[Question]
    passage_texts: Encoded
    question_texts: Encoded

    def searches(self, split: Split, found: int = CANDIDATES) -> Iterator[Search]:
        """The bi-encoder's search for every question of a split."""
        for place, question in enumerate(self.questions):
            if question.split == split:
                cosines = self.passage_texts.vectors @ self.question_texts.vectors[place]
                best = np.argsort(-cosines, kind="stable")[:found]
                yield Search(place, question.text, question.passage, [int(one) for one in best])

    def rows(self, search: Search) -> Rows:
        """The question and what was found, as one batch of the zoo."""
        return batch((self.question_texts, search.question), (self.passage_texts, search.found))


def open_bench(folder: Path, name: str, models: Models) -> Bench:
    """The sample of a set that `retrieval_data` made, encoded on the first call."""
    found = read_set(folder, name).sampled(SIZES[name], OTHERS[name])
    texts = [question.text for question in found.questions]
    return Bench(
        name,
        found.passages,
        found.questions,
        encoded(folder / "encoded" / f"{name}-passages", found.passages, models.graph, models.tokenizer),
        encoded(folder / "encoded" / f"{name}-questions", texts, models.graph, models.tokenizer),
    )
