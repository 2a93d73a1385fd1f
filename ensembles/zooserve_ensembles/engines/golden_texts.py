"""The golden texts of the gate: committed texts and reference vectors, through the encoder's own tokenizer."""

import base64
import json
from pathlib import Path

import numpy as np

from zooserve.errors import EngineRefused
from zooserve_ensembles.engines.gate import GoldenText
from zooserve_ensembles.texts import MAX_CHARACTERS

__all__ = ["read_golden_texts"]


def read_golden_texts(file: Path, tokenizer: Path, longest: int) -> tuple[GoldenText, ...]:
    """The file's rows, cut at `longest` tokens as the tokenizer stage cuts them. Raises EngineRefused."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
        texts = [row["text"][:MAX_CHARACTERS] for row in rows]
        vectors = [np.frombuffer(base64.b64decode(row["vector"]), "<f4") for row in rows]
    except OSError as exc:
        raise EngineRefused(f"{file} cannot be read: {exc.strerror}.") from exc
    except (KeyError, TypeError, ValueError) as exc:
        raise EngineRefused(f"{file} holds no golden vectors: rows of `text` and `vector` are asked.") from exc
    if not rows:
        raise EngineRefused(f"{file} has no rows, which would prove nothing.")
    return tuple(
        GoldenText(ids, vector) for ids, vector in zip(_token_ids(texts, tokenizer, longest), vectors, strict=True)
    )


def _token_ids(texts: list[str], tokenizer: Path, longest: int) -> list[tuple[int, ...]]:
    try:
        from tokenizers import Tokenizer
    except ImportError as exc:
        raise EngineRefused("The golden gate needs the package tokenizers, as the stages in the image do.") from exc
    if not tokenizer.is_file():
        raise EngineRefused(f"{tokenizer} is not there: run `zooserve fetch`.")
    made = Tokenizer.from_file(str(tokenizer))
    made.enable_truncation(longest)
    made.no_padding()
    return [tuple(encoded.ids) for encoded in made.encode_batch_fast(texts)]
