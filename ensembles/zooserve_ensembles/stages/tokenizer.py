"""Stage: texts to token ids, padded to the bucket of the request's longest text."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from zooserve_ensembles.buckets import BUCKETS, padded
from zooserve_ensembles.stages.stage import Arrays, Outcome, Stage
from zooserve_ensembles.texts import TextUnreadable, read_texts

__all__ = ["TritonPythonModel"]


class TritonPythonModel(Stage):
    """`text` to `input_ids`, `attention_mask` and `tokens`, with the tokenizer.json of the version's folder.

    The parameters `buckets` (lengths, ascending, with commas) and `pad_id` say otherwise where a model is not BERT's.
    """

    def open(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """Load the tokenizer; its own truncation (128) and fixed padding are not the model's, and are replaced."""
        # The cores belong to the encoders: a pool of threads that wakes for each batch takes more than it gives.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        from tokenizers import Tokenizer

        self._buckets = tuple(map(int, parameters["buckets"].split(","))) if "buckets" in parameters else BUCKETS
        self._pad_id = int(parameters.get("pad_id", 0))
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(self._buckets[-1])
        self._tokenizer.no_padding()

    def compute(self, inputs: Arrays) -> Arrays:
        """One request by itself."""
        (outcome,) = self.compute_all([inputs])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def compute_all(self, requests: Sequence[Arrays]) -> Sequence[Outcome]:
        """All texts of the batch in one call to the tokenizer, then each request padded by itself."""
        texts = [_texts(inputs) for inputs in requests]
        encoded = iter(
            self._tokenizer.encode_batch_fast([text for found in texts if isinstance(found, list) for text in found])
        )
        return [
            found if isinstance(found, TextUnreadable) else self._tensors([next(encoded).ids for _ in found])
            for found in texts
        ]

    def _tensors(self, rows: Sequence[Sequence[int]]) -> Arrays:
        ids, mask, tokens = padded(rows, self._buckets, self._pad_id)
        return {"input_ids": ids, "attention_mask": mask, "tokens": tokens}


def _texts(inputs: Arrays) -> list[str] | TextUnreadable:
    try:
        return read_texts(inputs["text"].ravel())
    except TextUnreadable as exc:
        return exc
