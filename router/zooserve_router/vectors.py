"""Vectors as OpenAI's clients read them: arrays of numbers, or base64 of little-endian float32."""

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ENCODINGS", "encoded_vectors"]

ENCODINGS = ("float", "base64")


def encoded_vectors(vectors: npt.NDArray[np.float32], encoding: str) -> list[Any]:
    """Each row as orjson (with its numpy option) writes it."""
    if encoding == "base64":
        return [base64.b64encode(vector.astype("<f4", copy=False).tobytes()).decode() for vector in vectors]
    return list(vectors)
