"""Documents that are replaced as wholes, perhaps by several processes at once.

Of a document only those chunks go that were there before the first of its new ones was written: what another process
stores meanwhile stays. Whoever is done looks at what is there then. The last one to look sees all that was written and
removed, so that either the document is his, whole, or he is told that it is not.
"""

from collections.abc import Callable

from zooserve.errors import CollectionError
from zooserve.sdk.aio.stores import AsyncStore
from zooserve.sdk.points import documents_named
from zooserve.sdk.upserting import Batch

__all__ = ["AsyncReplacement"]

_NAMED = 5


class AsyncReplacement:
    """Of the documents of one upsert. `shared` tells whether others may have written into the collection meanwhile."""

    def __init__(self, store: AsyncStore, physical: str, shared: Callable[[], bool], *, was_empty: bool) -> None:
        self._store = store
        self._physical = physical
        self._shared = shared
        self._was_empty = was_empty
        self._old = set[int | str]()
        """The points of the documents that begin and end in the batch."""
        self._under_way: dict[str, set[int | str]] = {}
        """The points of the one that a later batch ends."""

    async def begin(self, batch: Batch) -> None:
        """Before anything of the batch is written: see what its documents consist of."""
        ended = set(batch.documents)
        new = [name for name in batch.begun if name not in self._under_way]
        self._old = await self._points([name for name in new if name in ended])
        for name in new:
            if name not in ended:
                self._under_way[name] = await self._points([name])

    async def end(self, batch: Batch) -> int:
        """After the batch is stored: remove what its whole documents have no more; how many chunks that were.

        Raises CollectionError where another upsert of one of them has interfered.
        """
        if not batch.ends:
            return 0
        old = self._old.union(*(self._under_way.pop(name, ()) for name in batch.documents))
        removed = await self._store.remove_points(self._physical, old - batch.current)
        if self._shared():
            await self._require_whole(batch)
        return removed

    async def _points(self, documents: list[str]) -> set[int | str]:
        if self._was_empty or not documents:
            return set()
        return set(await self._store.documents(self._physical, documents_named(documents)))

    async def _require_whole(self, batch: Batch) -> None:
        found = await self._store.documents(self._physical, documents_named(batch.documents))
        mixed = {name for point, name in found.items() if point not in batch.current}
        mixed |= {end.document for end in batch.ends if not end.points <= found.keys()}
        if mixed:
            names = ", ".join(map(repr, sorted(mixed)[:_NAMED])) + (", …" if len(mixed) > _NAMED else "")
            raise CollectionError(
                f"While this ran, another upsert or delete changed what {names} consist{'s' * (len(mixed) == 1)} of in "
                f"{self._physical}, so that it may be a mixture of both now. Store it once more: the last one stays."
            )
