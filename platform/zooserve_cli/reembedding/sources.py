"""Where texts come from: the collection behind an alias, or files. Read in order, in pages, from any cursor on."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from zooserve_cli.reembedding.rows import DeadLetter, Row, fault_of_nesting, fault_of_text
from zooserve_cli.reembedding.store import Store

__all__ = ["CollectionSource", "Page", "Source", "row_of_record"]


@dataclass
class Page:
    """Some rows in their order, the bad ones apart; `cursor` is where the next page begins, None at the end."""

    cursor: Any
    rows: list[Row] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)

    def add(self, item: Row | DeadLetter) -> None:
        """Put it where it belongs."""
        if isinstance(item, Row):
            self.rows.append(item)
        else:
            self.dead.append(item)


class Source(Protocol):
    """Something that texts are read from."""

    def count(self) -> int:
        """How many rows there are, more or less: for the bar."""

    def pages(self, cursor: Any) -> Iterator[Page]:
        """From this cursor on; None is the beginning."""


class CollectionSource:
    """A Qdrant collection in the order of its ids. Ids are unique there."""

    def __init__(self, store: Store, collection: str, text_field: str, kept: Sequence[str], rows: int) -> None:
        self._store = store
        self._collection = collection
        self._text_field = text_field
        self._kept = kept
        self._rows = rows

    def count(self) -> int:
        """Exactly, at this moment."""
        return self._store.count(self._collection)

    def pages(self, cursor: Any) -> Iterator[Page]:
        """Pages of `rows` points, or as many as the store gives at once."""
        while True:
            records, cursor = self._store.scroll(self._collection, cursor, self._rows, vectors=list(self._kept))
            page = Page(cursor)
            for record in records:
                page.add(row_of_record(record, self._collection, self._text_field, self._kept))
            yield page
            if cursor is None:
                return


def row_of_record(record: Any, collection: str, text_field: str, kept: Collection[str]) -> Row | DeadLetter:
    """A point of the source, or why it cannot be embedded."""
    payload = record.payload or {}
    position = f"{collection}, point {record.id}"
    fault = fault_of_nesting(payload) or fault_of_text(payload, text_field)
    if fault is not None:
        return DeadLetter(*fault, position, record.id, payload)
    vectors = record.vector if kept and isinstance(record.vector, dict) else {}
    carried = {name: _plain(vector) for name, vector in vectors.items() if name in kept}
    return Row(record.id, payload[text_field], payload, position, carried)


def _plain(vector: Any) -> Any:
    """As JSON has it: a list of numbers, a list of lists, or a sparse vector's two lists."""
    if hasattr(vector, "indices"):
        return {"indices": list(vector.indices), "values": list(vector.values)}
    return vector
