"""An upsert in bounded batches, and what of a batch has to be embedded at all. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zooserve.errors import CallFailed, ServingError, ZooserveError
from zooserve.sdk.chunks import Chunk, Document, DocumentEnd, Item, Passage
from zooserve.sdk.collection_results import Upserted
from zooserve.sdk.index import Index
from zooserve.sdk.points import payload_of

__all__ = ["Batch", "Difference", "batches", "compared", "listed", "told"]

_PASSAGES = 256
_BYTES = 1 << 20


@dataclass(frozen=True)
class Batch:
    """Passages that are embedded and stored together, and the documents that end in them."""

    passages: list[Passage] = field(default_factory=list)
    ends: list[DocumentEnd] = field(default_factory=list)

    @property
    def documents(self) -> list[str]:
        """The names of the documents that are whole now."""
        return [end.document for end in self.ends]

    @property
    def begun(self) -> list[str]:
        """The names of all documents that it has anything of."""
        of_passages = (one.payload["document"] for one in self.passages if "document" in one.payload)
        return list(dict.fromkeys([*of_passages, *self.documents]))

    @property
    def current(self) -> frozenset[int | str]:
        """The points that these documents consist of."""
        return frozenset[int | str]().union(*(end.points for end in self.ends))


@dataclass(frozen=True)
class Difference:
    """What of a batch is new or changed, what has only another payload, and how many passages are as they were."""

    to_embed: list[Passage]
    to_update: list[Passage]
    unchanged: int


def listed(items: Iterable[Item] | Item) -> Iterable[Item]:
    """The items; a single one is a list of one."""
    return [items] if isinstance(items, str | Chunk | Document | Mapping) else items


def batches(given: Iterable[Passage | DocumentEnd]) -> Iterator[Batch]:
    """At most 256 passages, 256 ends and 1 MiB of texts and payloads each, taken from the iterable as needed."""
    batch, size = Batch(), 0
    for one in given:
        if isinstance(one, DocumentEnd):
            batch.ends.append(one)
            if len(batch.ends) == _PASSAGES:
                yield batch
                batch, size = Batch(), 0
            continue
        if len(batch.passages) == _PASSAGES or (batch.passages and size + one.size > _BYTES):
            yield batch
            batch, size = Batch(), 0
        batch.passages.append(one)
        size += one.size
    if batch.passages or batch.ends:
        yield batch


def compared(passages: Sequence[Passage], stored: Mapping[int | str, Mapping[str, Any]], index: Index) -> Difference:
    """`stored` are the payloads of the points that are there, without their texts."""
    to_embed: list[Passage] = []
    to_update: list[Passage] = []
    for passage in passages:
        held = stored.get(passage.point, {})
        if held.get("sha256") != passage.sha256:
            to_embed.append(passage)
        elif held != _without_text(passage, index):
            to_update.append(passage)
    return Difference(to_embed, to_update, len(passages) - len(to_embed) - len(to_update))


def told(error: ZooserveError, done: Upserted, physical: str) -> ZooserveError:
    """The error that ended an upsert, saying also what had been stored before it."""
    if done == Upserted():
        stored = "Nothing was stored."
    else:
        stored = (
            f"Before it {done.chunks} chunks were in the collection ({done.embedded} of them embedded now), and they "
            f"stay in {physical}: what is there is not embedded again."
        )
    said = f"{error} {stored}"
    error.args = (said,)
    if isinstance(error, ServingError | CallFailed):
        error.message = said
    return error


def _without_text(passage: Passage, index: Index) -> dict[str, Any]:
    return {key: value for key, value in payload_of(passage, index).items() if key != index.text_key}
