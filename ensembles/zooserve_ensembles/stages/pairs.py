"""Stage: a query and its documents to rows of token ids, each a pair, for cross-encoders."""

import os
from collections.abc import Mapping
from pathlib import Path

from zooserve_ensembles.buckets import BUCKETS, padded
from zooserve_ensembles.pairs import pair_rows
from zooserve_ensembles.stages.stage import Arrays, Stage
from zooserve_ensembles.texts import read_texts

__all__ = ["TritonPythonModel"]


class TritonPythonModel(Stage):
    """`text`, row 0 the query, to `input_ids`, `attention_mask`, `token_type_ids` and `tokens` of as many rows.

    The parameters `buckets` and `pad_id` are those of the tokenizer stage; `token_types` "no" leaves out the types,
    for models that have none.
    """

    def open(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """Load the tokenizer, without the truncation and padding that its file brings."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # as in the tokenizer stage
        from tokenizers import Tokenizer

        self._buckets = tuple(map(int, parameters["buckets"].split(","))) if "buckets" in parameters else BUCKETS
        self._pad_id = int(parameters.get("pad_id", 0))
        self._typed = parameters.get("token_types") != "no"
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def compute(self, inputs: Arrays) -> Arrays:
        """The pairs of one request."""
        query, *documents = read_texts(inputs["text"].ravel())
        rows, types = pair_rows(self._tokenizer, query, documents, self._buckets[-1])
        ids, mask, tokens = padded(rows, self._buckets, self._pad_id)
        kinds = {"token_type_ids": padded(types, self._buckets)[0]} if self._typed else {}
        return {"input_ids": ids, "attention_mask": mask, "tokens": tokens, **kinds}
