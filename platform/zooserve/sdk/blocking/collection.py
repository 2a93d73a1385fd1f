# Generated from ../aio/collection.py by `make sdk`: edit it there.
"""A collection of texts in Qdrant, whose vectors are all of one embedding space, and asked for with that alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from zooserve.errors import (
    BadInput,
    CollectionError,
    InputTooLong,
    OtherEmbeddingSpace,
    SpaceMismatch,
    ZooserveError,
)
from zooserve.sdk.blocking.opening import Opened, Terms, opened
from zooserve.sdk.blocking.replacing import Replacement
from zooserve.sdk.blocking.stores import Store, StoreAddress, Stores
from zooserve.sdk.bodies import SloClass, call_headers
from zooserve.sdk.budget import Budget, checked_seconds, left
from zooserve.sdk.chunks import Chunk, Document, Id, Item, Passage, ids_given, passages, rereadable
from zooserve.sdk.collection_results import Described, Hit, Upserted
from zooserve.sdk.index import METADATA_KEY, behind, index_of, require_marked
from zooserve.sdk.inputs import checked_positive, checked_text
from zooserve.sdk.points import filter_of, fused, hit_of, named, payload_of, point
from zooserve.sdk.results import SparseVector
from zooserve.sdk.upserting import Batch, batches, compared, listed, told

if TYPE_CHECKING:
    from zooserve.sdk.blocking.client import Zoo

__all__ = ["Collection", "Reading"]

_IDS_AT_ONCE = 1000


class Reading(Protocol):
    """A query's vector that was made already, as `rag_query` gives it."""

    @property
    def vector(self) -> Sequence[float]:
        """As many numbers as the space has."""

    @property
    def space(self) -> str:
        """Where it belongs."""


class Collection:
    """What `Zoo.collection` gives. Nothing is opened before the first call; each call finds the alias anew.

    Besides the errors below each call raises what the platform fails with (`Zoo.embed`), and of Qdrant:
    StoreUnavailable where it does not answer or its folder is held by another process, StoreRefused where it refuses
    the key. Opening raises SpaceMismatch where the model's vectors are not the collection's, UnmarkedCollection where
    it does not say which it holds, NoSuchCollection for an alias that points nowhere.
    """

    def __init__(self, zoo: "Zoo", stores: Stores, address: StoreAddress, terms: Terms, rerank_model: str) -> None:
        self.name = terms.name
        self._zoo = zoo
        self._stores = stores
        self._address = address
        self._terms = terms
        self._rerank_model = rerank_model
        self._known: Opened | None = None

    def __repr__(self) -> str:
        """Its name and where it is, without the key."""
        return f"{type(self).__name__}({self.name!r} in {self.where})"

    @property
    def where(self) -> str:
        """The folder or the server's address, for people."""
        return self._address.shown

    def upsert(
        self,
        items: Iterable[Item] | Item,
        *,
        slo_class: SloClass | None = "bulk",
        timeout_s: float = 600.0,
        concurrency: int = 4,
        progress: Callable[[int], None] | None = None,
    ) -> Upserted:
        """Store texts, Chunks and Documents; what is there with the same text is not embedded again.

        `items` may be endless: at most 256 chunks or 1 MiB are held at once, and about 100 bytes for each id. A
        list is checked whole before anything is stored. `timeout_s` is the budget of each batch's embedding; `progress`
        is called after each batch with how many chunks are done. An error says how many chunks had been stored before
        it; giving them again finds them unchanged. A document's old chunks go when its new ones are stored.

        Raises BadInput for an id that comes twice and for a text or payload that cannot be kept, InputTooLong naming
        the chunk that is longer than the model reads, CollectionError where the name was switched meanwhile, or another
        process changed one of the documents: of two at once, whoever ends last has his version whole, or is told.
        """
        return self._stored(items, slo_class, timeout_s, concurrency, progress, only=False)

    def sync(
        self,
        items: Iterable[Item] | Item,
        *,
        slo_class: SloClass | None = "bulk",
        timeout_s: float = 600.0,
        concurrency: int = 4,
        progress: Callable[[int], None] | None = None,
    ) -> Upserted:
        """Make the collection hold these items and nothing else: an upsert, then all other points are removed.

        Nothing is removed unless everything was stored where the name leads. Raises what `upsert` raises, and
        CollectionError where others have written into it meanwhile.
        """
        return self._stored(items, slo_class, timeout_s, concurrency, progress, only=True)

    def search(
        self,
        query: str,
        limit: int = 10,
        *,
        filter: Any = None,
        rerank: int | None = None,
        reading: Reading | None = None,
        timeout_s: float | None = None,
    ) -> list[Hit]:
        """The `limit` chunks nearest to the query, best first; none of an empty collection.

        `filter` is a mapping of payload keys to values that must be equal, or a `qdrant_client.models.Filter`. With
        `rerank` so many chunks are searched, and the reranker says which `limit` are best. A collection with a sparse
        model is searched by both vectors, fused by their ranks. `reading` is what `rag_query` made of the query, so
        that it is not embedded again; SpaceMismatch if it is of another space. `timeout_s`, left out the client's, is
        the budget of everything that the platform does for it.
        """
        checked_text(query, "query")
        wanted = checked_positive(limit, "limit")
        where = filter_of(filter)
        if reading is not None:
            _require_reading(reading)
        found = wanted if rerank is None else max(wanted, checked_positive(rerank, "rerank"))
        budget = Budget.of(self._zoo.timeout_s if timeout_s is None else timeout_s)
        hits = self._found(query, found, where, reading, budget)
        return hits if rerank is None or not hits else self._reranked(query, hits, wanted, budget)

    def delete(self, ids: Iterable[Id] | Id) -> int:
        """Remove the chunks and documents of these ids, those that are there; how many chunks that were.

        Raises BadInput, before anything is removed, for what can be no id.
        """
        points = ids_given(ids)
        store, known = self._open()
        removed = 0
        for start in range(0, len(points), _IDS_AT_ONCE):
            part = points[start : start + _IDS_AT_ONCE]
            where = named([point for point, _ in part], [document for _, document in part])
            removed += store.remove(known.place.physical, where)
        self._require_unmoved(store, known)
        return removed

    def count(self) -> int:
        """How many chunks it holds."""
        store, known = self._open()
        return store.count(known.place.physical)

    def describe(self) -> Described:
        """Its name, the Qdrant collection behind it, whose vectors it holds, and how many."""
        store, known = self._open()
        points = store.count(known.place.physical)
        return Described(self.name, known.place.physical, known.index, points)

    def drop(self) -> bool:
        """Remove it, whichever model's vectors it holds; whether there was anything of it.

        What re-embeddings left behind its name goes with it, and an alias that points nowhere. A collection to which
        another alias leads stays. Cut off in the middle, it is completed by calling it again. Raises UnmarkedCollection
        for a collection that is not ours.
        """
        store = self._store()
        collections, aliases = store.held()
        ours = [held for held in behind(self.name, collections, aliases) if self._is_ours(store, held, aliases)]
        if not ours and self.name not in aliases:
            return False
        self._known = None
        store.drop(self.name, ours)
        return True

    def _is_ours(self, store: Store, physical: str, aliases: Mapping[str, str]) -> bool:
        """Whether it says which vectors it holds. Raises UnmarkedCollection for one that the name leads to and not."""
        metadata = (store.info(physical)).config.metadata
        if physical == aliases.get(self.name, self.name):
            require_marked(physical, index_of(physical, metadata))
        return METADATA_KEY in (metadata or {})

    def close(self) -> None:
        """Let go of the folder or the connections, which collections at one address share; the next use opens them.

        A client that was given stays open. Closing the Zoo does this for all of its collections.
        """
        self._stores.let_go(self._address)

    def _check(self, items: Any) -> None:
        """Raises BadInput for whatever is wrong in a list."""
        if isinstance(items, bytes) or not isinstance(items, Iterable | Chunk | Document):
            raise BadInput(
                f"`items` is of type {type(items).__name__}; give texts, Chunks or Documents.", param="items"
            )
        given = listed(items)
        if rereadable(given):
            for _ in passages(given):
                pass

    def _stored(
        self,
        items: Iterable[Item] | Item,
        slo_class: SloClass | None,
        timeout_s: float,
        concurrency: int,
        progress: Callable[[int], None] | None,
        *,
        only: bool,
    ) -> Upserted:
        """What was done. What cannot be right is refused before the collection is opened, which may create it."""
        self._check(items)
        checked_seconds(timeout_s)
        ask = {"slo_class": slo_class, "concurrency": checked_positive(concurrency, "concurrency")}
        call_headers(slo_class, None)
        store, known = self._open()
        physical = known.place.physical
        done, kept = Upserted(), set[int | str]()
        try:
            with store.writing(physical) as writer:
                is_empty = store.count(physical) == 0
                replacing = Replacement(store, physical, lambda: not writer.is_alone, was_empty=is_empty)
                for batch in batches(passages(listed(items))):
                    budget = Budget.of(timeout_s)
                    replacing.begin(batch)
                    done += self._stored_batch(store, known, batch, budget, ask, is_empty=is_empty)
                    done += Upserted(removed=replacing.end(batch))
                    kept.update(passage.point for passage in batch.passages)
                    if progress is not None:
                        progress(done.chunks)
                self._require_unmoved(store, known)
                if only:
                    done += Upserted(removed=self._removed_others(store, known, kept))
        except ZooserveError as exc:
            raise told(exc, done, physical) from exc.__cause__
        return done

    def _removed_others(self, store: Store, known: Opened, kept: set[int | str]) -> int:
        """Remove all points but these; how many that were. Raises CollectionError where these are not all then."""
        physical = known.place.physical
        removed = store.remove_but(physical, kept.__contains__)
        self._require_unmoved(store, known)
        if store.count(physical) != len(kept):
            raise CollectionError(
                f"While this ran, somebody else wrote into {physical}, so that it does not hold what was given and "
                "nothing else. Do it once more."
            )
        return removed

    def _stored_batch(
        self, store: Store, known: Opened, batch: Batch, budget: Budget, ask: dict[str, Any], *, is_empty: bool
    ) -> Upserted:
        physical = known.place.physical
        held: dict[int | str, Any] = {}
        if not is_empty and batch.passages:
            points = [passage.point for passage in batch.passages]
            held = store.payloads(physical, points, known.index.text_key)
        changes = compared(batch.passages, held, known.index)
        if changes.to_embed:
            store.upsert(physical, self._embedded(known, changes.to_embed, budget, ask))
        if changes.to_update:
            payloads = [(passage.point, payload_of(passage, known.index)) for passage in changes.to_update]
            store.overwrite_payloads(physical, payloads)
        return Upserted(len(changes.to_embed), changes.unchanged, len(changes.to_update))

    def _embedded(self, known: Opened, chunks: Sequence[Passage], budget: Budget, ask: dict[str, Any]) -> list[Any]:
        """PointStructs. Raises InputTooLong naming the chunk."""
        try:
            dense, sparse = self._vectors(known, chunks, budget, ask)
        except InputTooLong as exc:
            raise self._named(known, chunks, budget, ask, exc) from exc
        return [
            point(chunk, known.index, dense[place], None if sparse is None else sparse[place])
            for place, chunk in enumerate(chunks)
        ]

    def _vectors(
        self, known: Opened, chunks: Sequence[Passage], budget: Budget, ask: dict[str, Any]
    ) -> tuple[Any, Sequence[SparseVector] | None]:
        """Dense and sparse ones of the chunks."""
        texts = [chunk.text for chunk in chunks]
        dense = self._dense(known, texts, budget, input_type="passage", **ask)
        return dense, self._sparse(known, texts, budget, **ask)

    def _named(
        self, known: Opened, chunks: Sequence[Passage], budget: Budget, ask: dict[str, Any], refusal: InputTooLong
    ) -> InputTooLong:
        """The refusal by the chunk that caused it, found by halves, the longer chunks first: at most 9 more calls."""
        suspects = sorted(chunks, key=lambda chunk: len(chunk.text), reverse=True)
        while len(suspects) > 1:
            half = suspects[: len(suspects) // 2]
            suspects = half if self._refused(known, half, budget, ask) else suspects[len(half) :]
        refused = self._refused(known, suspects, budget, ask)
        if refused is None:  # the model has changed meanwhile
            return refusal
        return InputTooLong(
            f"{suspects[0].shown} is longer than the model reads: {refused} To cut it: zooserve.split(text).",
            param="text",
            code=refused.code,
        )

    def _refused(
        self, known: Opened, chunks: Sequence[Passage], budget: Budget, ask: dict[str, Any]
    ) -> InputTooLong | None:
        try:
            self._vectors(known, chunks, budget, ask)
        except InputTooLong as exc:
            return exc
        return None

    def _dense(self, known: Opened, texts: str | Sequence[str], budget: Budget, **ask: Any) -> Any:
        """Embeddings in the collection's space. Raises SpaceMismatch where the platform makes others by now."""
        try:
            return self._zoo.embed(texts, model=known.model, space=known.index.space, timeout_s=left(budget), **ask)
        except (OtherEmbeddingSpace, SpaceMismatch):
            again = self._opened_again(known, budget)
            return self._zoo.embed(texts, model=again.model, space=again.index.space, timeout_s=left(budget), **ask)

    def _sparse(
        self, known: Opened, texts: str | Sequence[str], budget: Budget, **ask: Any
    ) -> Sequence[SparseVector] | None:
        """The same of sparse vectors; None where the collection has none."""
        if known.sparse_model is None or known.index.sparse is None:
            return None
        space = known.index.sparse.space
        try:
            made = self._zoo.embed_sparse(texts, model=known.sparse_model, space=space, timeout_s=left(budget), **ask)
        except (OtherEmbeddingSpace, SpaceMismatch):
            again = self._opened_again(known, budget)
            made = self._zoo.embed_sparse(
                texts, model=str(again.sparse_model), space=space, timeout_s=left(budget), **ask
            )
        return made.vectors

    def _opened_again(self, known: Opened, budget: Budget) -> Opened:
        """After a model was found in another space: opening says which, unless it is served under another name."""
        self._known = None
        _, again = self._open(budget)
        if again.place != known.place:
            raise self._moved(known, again.place.physical) from None
        return again

    def _found(self, query: str, limit: int, where: Any, reading: Reading | None, budget: Budget) -> list[Hit]:
        store, known = self._open(budget)
        if reading is None:
            dense = (self._dense(known, query, budget, input_type="query"))[0]
        else:
            dense = list(_of_space(self.name, known, reading))
        sparse = self._sparse(known, query, budget)
        if sparse is None:
            found = store.query(known.place.physical, limit, query=dense, query_filter=where)
        else:
            found = store.query(known.place.physical, limit, **fused(dense, sparse[0], where, limit))
        return [hit_of(one, known.index) for one in found]

    def _reranked(self, query: str, hits: list[Hit], limit: int, budget: Budget) -> list[Hit]:
        without = [hit for hit in hits if not hit.text]
        if without:
            raise CollectionError(
                f"The point {without[0].point} of {self.name} has no text to rerank. Search without `rerank`; a "
                "collection whose texts are under another key is adopted with text_key=…."
            )
        texts = [hit.text for hit in hits]
        ranked = self._zoo.rerank(query, texts, model=self._rerank_model, top_n=limit, timeout_s=left(budget))
        return [hits[one.index].scored(one.score) for one in ranked]

    def _store(self) -> Store:
        return self._stores.at(self._address)

    def _open(self, budget: Budget | None = None) -> tuple[Store, Opened]:
        """Where the name leads now, checked if it leads elsewhere than before: in this budget, or one of its own."""
        store, known = self._store(), self._known
        if known is None or not self._still_leads(store, known):
            self._known = known = opened(self._zoo, store, self._terms, budget or Budget.of(self._zoo.timeout_s))
        return store, known

    def _still_leads(self, store: Store, known: Opened) -> bool:
        return store.leads(self.name, by_alias=known.place.by_alias) == known.place.physical

    def _require_unmoved(self, store: Store, known: Opened) -> None:
        if not self._still_leads(store, known):
            raise self._moved(known, "another collection")

    def _moved(self, known: Opened, physical: str) -> CollectionError:
        return CollectionError(
            f"While this ran, {self.name} was switched from {known.place.physical} to {physical}, so that what was "
            "done is not where the name leads now. Do it once more."
        )


def _require_reading(reading: Any) -> None:
    if not hasattr(reading, "space") or not hasattr(reading, "vector"):
        raise BadInput(
            f"`reading` is of type {type(reading).__name__}; give what `rag_query` made of the query, or leave it out.",
            param="reading",
        )


def _of_space(name: str, known: Opened, reading: Reading) -> Sequence[float]:
    if reading.space != known.index.space:
        raise SpaceMismatch(
            f"The collection {name} holds vectors of {known.index.release} (space {known.index.space}); the reading "
            f"given has one of space {reading.space}. Leave `reading` out: the collection embeds queries with its own "
            "model."
        )
    return reading.vector
