"""Whether the new collection finds what it holds: a sample embedded once more, and looked for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from zooserve.errors import JobStopped
from zooserve.sdk.blocking.client import Zoo
from zooserve_cli.reembedding.embedding import Embedder, Orders, Pace
from zooserve_cli.reembedding.store import Store

__all__ = ["Proof", "proven"]

_SAMPLE = 24
_NEIGHBOURS = 10
_LEAST_COSINE = 0.99
"""Of a vector stored and one made anew: other batches differ by less than 0.001 even in 8-bit arithmetic; a vector of
another text or model by far more."""
_LEAST_FOUND = 0.9
"""A server's index is approximate, and equal texts push each other out."""


@dataclass(frozen=True)
class Proof:
    """What was found. `overlap` is the share of a point's ten neighbours that it had in the old space, too."""

    sampled: int
    least_cosine: float
    found: float
    overlap: float | None

    def as_json(self) -> dict[str, Any]:
        """Rounded."""
        return {
            "sampled": self.sampled,
            "least_cosine": round(self.least_cosine, 6),
            "found_again": round(self.found, 3),
            "neighbours_as_before": None if self.overlap is None else round(self.overlap, 3),
        }


def proven(
    store: Store, zoo: Zoo, orders: Orders, target: str, vector: str, text_field: str, source: str | None
) -> Proof:
    """Raises JobStopped where the sample is not what it should be, and what the platform fails with for too long."""
    sample = store.sample(target, _SAMPLE, vector, text_field)
    drawn = [point for point in sample if (point.payload or {}).get(text_field)]
    if not drawn:
        return Proof(0, 1.0, 1.0, None)
    texts = [point.payload[text_field] for point in drawn]
    anew = _embedded(zoo, orders, texts)
    cosines = [_cosine(_vector(point, vector), fresh) for point, fresh in zip(drawn, anew, strict=True)]
    found = [_is_found(store, target, point.id, fresh, vector) for point, fresh in zip(drawn, anew, strict=True)]
    proof = Proof(len(drawn), min(cosines), fmean(found), _overlap(store, source, target, vector, drawn))
    if proof.least_cosine < _LEAST_COSINE or proof.found < _LEAST_FOUND:
        raise JobStopped(
            f"The vectors in {target} are not those of their texts: of {proof.sampled} drawn, the least like its own "
            f"has cosine {proof.least_cosine:.4f}, and {proof.found:.0%} find themselves. The alias was not switched. "
            "Begin anew with --restart."
        )
    return proof


def _embedded(zoo: Zoo, orders: Orders, texts: Sequence[str]) -> list[Sequence[float]]:
    """As patiently as the parts were. Raises JobStopped where a text that was embedded is refused."""
    made = Embedder(replace(orders, sparse_model=""), zoo, Pace(orders.texts_per_s)).embed(texts)
    if made.refused:
        reason, detail = next(iter(made.refused.values()))
        raise JobStopped(f"A text of the sample was embedded before and is refused now ({reason}): {detail}")
    size = len(made.vectors) // len(texts)
    return [made.vectors[place * size : (place + 1) * size] for place in range(len(texts))]


def _is_found(store: Store, target: str, point: int | str, fresh: Sequence[float], vector: str) -> bool:
    """Among the nearest, or as near as the nearest."""
    nearest = store.nearest(target, list(fresh), _NEIGHBOURS, vector)
    return any(hit.id == point for hit in nearest) or bool(nearest and nearest[-1].score > 1 - 1e-4)


def _overlap(store: Store, source: str | None, target: str, vector: str, drawn: Sequence[Any]) -> float | None:
    if source is None or len(drawn) < 2:
        return None
    shares = [_shared(store, source, target, point.id, vector) for point in drawn]
    known = [share for share in shares if share is not None]
    return fmean(known) if known else None


def _shared(store: Store, source: str, target: str, point: int | str, vector: str) -> float | None:
    from zooserve.errors import StoreRefused

    try:
        before = {hit.id for hit in store.nearest(source, point, _NEIGHBOURS, vector)}
    except StoreRefused:  # the point has no such vector there
        return None
    after = {hit.id for hit in store.nearest(target, point, _NEIGHBOURS, vector)}
    return len(before & after) / len(before) if before else None


def _vector(point: Any, name: str) -> Sequence[float]:
    if isinstance(point.vector, dict):
        vector: Sequence[float] = point.vector[name]
        return vector
    whole: Sequence[float] = point.vector
    return whole


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    norms = math.sqrt(math.fsum(value * value for value in one) * math.fsum(value * value for value in other))
    return math.fsum(left * right for left, right in zip(one, other, strict=True)) / norms if norms else 0.0
