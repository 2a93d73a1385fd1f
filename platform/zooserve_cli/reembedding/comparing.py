"""The source beside the new collection, both in the order of their ids: what is missing, other, or too much.

Ids and whole payloads are compared, so that this is the proof of a copy and finds what was written meanwhile. Memory: a
page of each side, and the ids of the dead letters.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from zooserve_cli.reembedding.rows import digest
from zooserve_cli.reembedding.store import Store

__all__ = ["Difference", "differences", "same_payload"]

_PAGE = 512
_LAST = ("~", 0)


@dataclass(frozen=True)
class Difference:
    """A point to make, or to make anew (a Record of the source), or the id of one to remove."""

    record: Any = None
    removed: int | str | None = None


def differences(
    store: Store, source: str, target: str, dead: Mapping[int | str, str], kept: Collection[str]
) -> Iterator[Difference]:
    """What the target lacks or has too much; `kept` are vectors that a record is read with.

    The `dead` are left out as long as their payload has the digest that is given by their id.
    """
    theirs = _records(store, source, kept)
    ours = _records(store, target, ())
    left, right = next(theirs, None), next(ours, None)
    while left is not None or right is not None:
        before = _place(left) < _place(right)
        if left is not None and right is not None and _place(left) == _place(right):
            if not same_payload(left.payload, right.payload):
                yield Difference(record=left)
            left, right = next(theirs, None), next(ours, None)
        elif left is not None and before:
            if left.id not in dead or dead[left.id] != digest(left.payload):
                yield Difference(record=left)
            left = next(theirs, None)
        elif right is not None:
            yield Difference(removed=right.id)
            right = next(ours, None)


def same_payload(one: Any, other: Any) -> bool:
    """Equal, and of equal types: 1 is not 1.0, nor true; None is not a missing key, but no payload is an empty one."""
    if isinstance(one, dict) or isinstance(other, dict) or one is None or other is None:
        return _same_mapping(one, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_payload, one, other))
    return type(one) is type(other) and bool(one == other)


def _same_mapping(one: Any, other: Any) -> bool:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one is None and other is None
    return one.keys() == other.keys() and all(same_payload(value, other[key]) for key, value in one.items())


def _records(store: Store, collection: str, vectors: Collection[str]) -> Iterator[Any]:
    offset: Any = None
    while True:
        records, offset = store.scroll(collection, offset, _PAGE, vectors=list(vectors))
        for record in records:
            record.payload = record.payload or {}
            yield record
        if offset is None:
            return


def _place(record: Any) -> tuple[str, int]:
    """In Qdrant's order: integers, then UUIDs; behind everything where there is no record more."""
    if record is None:
        return _LAST
    return ("", record.id) if isinstance(record.id, int) else (record.id, 0)
