"""Texts as the zoo's sentence encoder sees them: token ids, token vectors, one vector each; kept in a folder.

Token vectors take 1.5 kB each, so they lie in a file that is mapped, not read.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from zooserve_ensembles.late_interaction import Floats

__all__ = ["Encoded", "Rows", "batch", "encoded"]

MAX_TOKENS = 256
ROWS = 16
Ids = npt.NDArray[np.int64]
Rows = tuple[Ids, Ids, Floats, Floats]
"""Ids, mask, token vectors and sentence vectors of some texts, as one batch of the zoo has them."""


class Encoded:
    """Encoded texts, by their places."""

    def __init__(self, folder: Path) -> None:
        self.lengths: Ids = np.load(folder / "lengths.npy")
        self.vectors: Floats = np.load(folder / "vectors.npy")
        self._ids: Ids = np.load(folder / "ids.npy")
        self._ends = np.cumsum(self.lengths)
        self._folder = folder

    def __len__(self) -> int:
        return len(self.lengths)

    def ids(self, place: int) -> Ids:
        """The token ids of one text."""
        return self._ids[self._span(place)]

    def tokens(self, place: int) -> Floats:
        """The token vectors of one text."""
        return np.asarray(self._tokens[self._span(place)])

    @cached_property
    def _tokens(self) -> Floats:
        """Opened when wanted: who trains on texts alone needs none of them."""
        tokens: Floats = np.load(self._folder / "tokens.npy", mmap_mode="r")
        return tokens

    def _span(self, place: int) -> slice:
        return slice(int(self._ends[place] - self.lengths[place]), int(self._ends[place]))


def batch(query: tuple[Encoded, int], documents: tuple[Encoded, Sequence[int]]) -> Rows:
    """A question and some passages, padded, the question in row 0."""
    texts = [query, *((documents[0], place) for place in documents[1])]
    lengths = np.array([encoded.lengths[place] for encoded, place in texts])
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    ids, tokens = np.zeros_like(mask), np.zeros((*mask.shape, texts[0][0].vectors.shape[1]), np.float32)
    for row, (encoded, place) in enumerate(texts):
        ids[row, : lengths[row]] = encoded.ids(place)
        tokens[row, : lengths[row]] = encoded.tokens(place)
    return ids, mask, tokens, np.stack([encoded.vectors[place] for encoded, place in texts])


def encoded(folder: Path, texts: Sequence[str], graph: Path, tokenizer: Path) -> Encoded:
    """The texts encoded, once: what lies in the folder is used when it was made from the same texts."""
    made_from = json.dumps(list(texts))
    if not (folder / "texts.json").is_file() or (folder / "texts.json").read_text() != made_from:
        folder.mkdir(parents=True, exist_ok=True)
        _encode(folder, texts, graph, tokenizer)
        (folder / "texts.json").write_text(made_from)
    return Encoded(folder)


def _encode(folder: Path, texts: Sequence[str], graph: Path, tokenizer: Path) -> None:
    import onnxruntime
    from tokenizers import Tokenizer

    reader = Tokenizer.from_file(str(tokenizer))
    reader.enable_truncation(MAX_TOKENS)
    reader.no_padding()
    rows = [encoding.ids for encoding in reader.encode_batch(list(texts))]
    lengths = np.array([len(row) for row in rows])
    starts = np.cumsum(lengths) - lengths
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    width = session.get_outputs()[0].shape[-1]
    vectors = np.zeros((len(rows), width), np.float32)
    tokens: Any = np.lib.format.open_memmap(
        folder / "tokens.npy", "w+", dtype=np.float32, shape=(int(lengths.sum()), width)
    )
    order = np.argsort(lengths, kind="stable")
    for at in range(0, len(rows), ROWS):
        places = order[at : at + ROWS]
        mask = (np.arange(lengths[places].max()) < lengths[places][:, None]).astype(np.int64)
        ids = np.zeros_like(mask)
        ids[mask > 0] = np.concatenate([rows[place] for place in places])
        found = session.run(["sentence_embedding", "token_embeddings"], {"input_ids": ids, "attention_mask": mask})
        vectors[places] = found[0]
        for row, place in enumerate(places):
            tokens[starts[place] : starts[place] + lengths[place]] = found[1][row, : lengths[place]]
    tokens.flush()
    np.save(folder / "lengths.npy", lengths)
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "ids.npy", np.concatenate([np.array(row) for row in rows]))
