"""Qdrant as a job uses it: a folder of this machine, or a server. Failures are errors of zooserve.errors."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from zooserve.errors import JobRefused, NoSuchCollection, StoreRefused, StoreUnavailable
from zooserve.sdk.index import DENSE, Place, find
from zooserve.sdk.store_faults import folder_in_use, translated
from zooserve_cli.reembedding.layout import Layout
from zooserve_cli.reembedding.replies import ReplyBound, ReplyTooLarge

__all__ = ["Address", "Store"]

_TIMEOUT_S = 60
_KEY_STATUS = (401, 403)
_OF_THE_POINTS = (400, 413, 422, None)
"""What a refusal of the points themselves has as its status: None is the local mode's. Others are of the whole."""
_TRIES = 6
_FIRST_PAUSE_S = 0.5
_MOST_AT_ONCE = 4096
_PAGE_BYTES = 8 << 20
"""Of points that are read together. Parsed they take several times as much."""
_SENT_BYTES = 8 << 20
"""Of points that are written together; a server takes 32 MiB unless it was told otherwise."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Address:
    """Where the store is: a folder or a server, never both."""

    folder: str | None = None
    url: str | None = None
    api_key: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """For people; never the key."""
        return self.folder or self.url or ""


class Store:
    """One Qdrant client."""

    def __init__(self, client: Any, address: Address, bound: ReplyBound | None = None) -> None:
        self._client = client
        self.address = address
        self._bound = bound or ReplyBound()
        self._at_once = _MOST_AT_ONCE
        """Points that a page of `_PAGE_BYTES` held of late."""

    @classmethod
    @contextmanager
    def opened(cls, address: Address, *, create: bool = False, trace: bool = True) -> Iterator["Store"]:
        """For the block. Raises StoreUnavailable, StoreRefused, and NoSuchCollection for a folder that is none.

        With `create` a folder that is none is an empty store, made unless there must be no trace of it.
        """
        bound = ReplyBound()
        with warnings.catch_warnings():
            # The local mode warns from 20,000 points on, and of payload indexes; docs/reembed.md says both.
            warnings.filterwarnings("ignore", category=UserWarning)
            client = _connected(address, bound, create=create, trace=trace)
            try:
                yield cls(client, address, bound)
            finally:
                client.close()

    @property
    def is_local(self) -> bool:
        """Whether this process alone can read and write it."""
        return self.address.folder is not None

    def place(self, name: str) -> Place | None:
        """Where the name leads. Raises NoSuchCollection where its alias points at nothing."""
        return find(name, self.collections(), self.aliases())

    def collections(self) -> set[str]:
        """Their names; aliases are none."""
        return self._patiently(self._collections)

    def aliases(self) -> dict[str, str]:
        """Where each leads."""
        return self._patiently(self._aliases)

    def _collections(self) -> set[str]:
        return {held.name for held in self._client.get_collections().collections}

    def _aliases(self) -> dict[str, str]:
        return {each.alias_name: each.collection_name for each in self._client.get_aliases().aliases}

    def info(self, collection: str) -> Any:
        """Its CollectionInfo."""
        return self._patiently(lambda: self._client.get_collection(collection))

    def count(self, collection: str) -> int:
        """How many points it has, exactly."""
        return int(self._patiently(lambda: self._client.count(collection, exact=True)).count)

    def led_to(self, alias: str) -> str:
        """The collection that the alias leads to; empty where to nothing, or to something that is no more."""
        return self._patiently(lambda: self._led_to(alias))

    def _led_to(self, alias: str) -> str:
        physical = self._aliases().get(alias, "")
        return physical if physical in self._collections() else ""

    def scroll(self, collection: str, offset: Any, limit: int, *, vectors: Sequence[str] = ()) -> tuple[list[Any], Any]:
        """Records in the order of their ids from `offset` on, and where to go on; None at the end.

        At most `limit`, at least one, and no more than 8 MiB hold.
        """
        while True:
            asked = min(limit, self._at_once)
            self._bound.most = None if asked == 1 else _PAGE_BYTES
            try:
                records, following = self._patiently(
                    partial(self._scrolled, collection, offset, asked, list(vectors) or False)
                )
            except ReplyTooLarge:
                self._at_once = asked // 2
                continue
            finally:
                self._bound.most = None
            held = _fitting(records) if self.is_local else len(records)
            if held < len(records):
                self._at_once = held
                return records[:held], records[held].id
            self._at_once = min(_MOST_AT_ONCE, self._at_once + asked // 8 + 1)
            return records, following

    def _scrolled(self, collection: str, offset: Any, limit: int, vectors: Any) -> Any:
        from qdrant_client.http.exceptions import ResponseHandlingException

        try:
            records, following = self._client.scroll(
                collection, offset=offset, limit=limit, with_payload=True, with_vectors=vectors
            )
        except ResponseHandlingException as exc:
            if isinstance(exc.source, ReplyTooLarge):
                raise exc.source from exc
            raise
        return list(records), following

    def sample(self, collection: str, limit: int, vector: str, key: str) -> list[Any]:
        """Points drawn by chance, with the vector of this name, and of their payload what is under the key."""
        from qdrant_client import models

        payload: Any = [key] if key.isidentifier() else True  # of others Qdrant makes paths
        drawn = models.SampleQuery(sample=models.Sample.RANDOM)
        with_vectors = [vector] if vector else True
        return list(
            self._patiently(
                lambda: self._client.query_points(
                    collection, query=drawn, limit=limit, with_payload=payload, with_vectors=with_vectors
                )
            ).points
        )

    def nearest(self, collection: str, query: Any, limit: int, vector: str) -> list[Any]:
        """ScoredPoints nearest to a vector, or to a point by its id; without payload."""
        return list(
            self._patiently(
                lambda: self._client.query_points(
                    collection, query=query, using=vector or None, limit=limit, with_payload=False
                )
            ).points
        )

    def create(self, collection: str, layout: Layout) -> None:
        """An empty collection, its payload not indexed yet."""
        metadata = dict(layout.metadata)
        vectors: Any = layout.dense[DENSE] if set(layout.dense) == {DENSE} else dict(layout.dense)
        with translated(self.address.shown):
            self._client.create_collection(
                collection,
                vectors_config=vectors,
                sparse_vectors_config=dict(layout.sparse) or None,
                metadata=metadata,
                **layout.extra,
            )

    def index_payload(self, collection: str, indexes: Mapping[str, Any]) -> None:
        """Have these payload fields indexed; those that are already stay as they are."""
        for name, schema in indexes.items():
            self._patiently(
                partial(self._client.create_payload_index, collection, name, field_schema=schema, wait=True)
            )

    def delete(self, collection: str) -> None:
        """Remove it and what is in it."""
        with translated(self.address.shown):
            self._client.delete_collection(collection)

    def upsert(self, collection: str, points: Sequence[Any]) -> dict[int, str]:
        """PointStructs, stored when this returns; by their place those that Qdrant refuses, and why.

        Raises StoreRefused for a refusal that is not of these points: of the key, or of a collection that is gone.
        """
        refused: dict[int, str] = {}
        for start, batch in [(0, points)] if self.is_local else _batches(points):
            refused.update({start + place: why for place, why in self._upserted(collection, batch).items()})
        return refused

    def _upserted(self, collection: str, points: Sequence[Any]) -> dict[int, str]:
        if not points:
            return {}
        try:
            self._patiently(lambda: self._client.upsert(collection, list(points), wait=True))
        except StoreRefused as exc:
            if getattr(exc.__cause__, "status_code", None) not in _OF_THE_POINTS:
                raise
            if len(points) == 1:
                return {0: str(exc)}
            half = len(points) // 2
            later = self._upserted(collection, points[half:])
            return self._upserted(collection, points[:half]) | {half + place: why for place, why in later.items()}
        return {}

    def remove(self, collection: str, points: Sequence[int | str]) -> None:
        """Delete points by their ids."""
        if points:
            self._patiently(lambda: self._client.delete(collection, list(points), wait=True))

    def switch(self, alias: str, collection: str, expected: str) -> None:
        """Make the alias lead to the collection instead of to `expected` (empty: to nothing), in one step.

        Raises JobRefused where it leads elsewhere. Qdrant cannot compare and switch in one: the look comes just before.
        """
        self._patiently(lambda: self._switched(alias, collection, expected))

    def _switched(self, alias: str, collection: str, expected: str) -> None:
        from qdrant_client import models

        now = self._led_to(alias)
        if now == collection:
            return
        _refuse_moved(alias, now, expected, collection)
        steps: list[Any] = []
        if alias in self._aliases():
            steps.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias)))
        made = models.CreateAlias(collection_name=collection, alias_name=alias)
        steps.append(models.CreateAliasOperation(create_alias=made))
        self._client.update_collection_aliases(steps)

    def require_unmoved(self, alias: str, expected: str, target: str) -> None:
        """Raises JobRefused where the alias leads to neither of the two: somebody else has switched it."""
        _refuse_moved(alias, self.led_to(alias), expected, target)

    def _patiently(self, call: Callable[[], Result]) -> Result:
        """What can be repeated without harm, tried again for half a minute while a server is away."""
        for failures in range(_TRIES):
            try:
                with translated(self.address.shown):
                    return call()
            except StoreUnavailable:
                if self.is_local or failures == _TRIES - 1:
                    raise
                time.sleep(_FIRST_PAUSE_S * 2**failures)
        raise AssertionError("unreachable")


def _refuse_moved(alias: str, now: str, expected: str, target: str) -> None:
    if now in (expected, target):
        return
    raise JobRefused(
        f"{alias} leads to {now or 'nothing'} now and led to {expected or 'nothing'} before: somebody else switched it "
        f"meanwhile, so it was left as it is. If that is right, {target} is not needed. If it is not, point {alias} "
        f"back at {expected or 'nothing'} in Qdrant and give the same command; --restart begins anew from where it "
        "leads now."
    )


def _fitting(records: Sequence[Any]) -> int:
    """How many of them a page holds, one at least."""
    size = 0
    for place, record in enumerate(records):
        size += _weight(record)
        if place and size > _PAGE_BYTES:
            return place
    return len(records)


def _batches(points: Sequence[Any]) -> Iterator[tuple[int, Sequence[Any]]]:
    """The points, as many as are written together, each with the place of the first."""
    start, size = 0, 0
    for place, point in enumerate(points):
        weight = _weight(point)
        if place > start and size + weight > _SENT_BYTES:
            yield start, points[start:place]
            start, size = place, 0
        size += weight
    if points:
        yield start, points[start:]


def _weight(point: Any) -> int:
    """The bytes of a point as JSON; too many to share a page where it cannot be written."""
    try:
        return len(point.model_dump_json())
    except ValueError:  # of what is nested too deeply, or no UTF-8
        return _PAGE_BYTES


def _connected(address: Address, bound: ReplyBound, *, create: bool, trace: bool) -> Any:
    from qdrant_client import QdrantClient

    if address.folder is None:
        with _key_told(address), translated(address.shown):
            client = QdrantClient(
                url=address.url, api_key=address.api_key, timeout=_TIMEOUT_S, check_compatibility=False,
                **bound.client_arguments,
            )  # fmt: skip
            client.get_collections()  # a server that is down or refuses the key is told at once
            return client
    is_there = (Path(address.folder) / "meta.json").is_file()
    if not create and not is_there:
        raise NoSuchCollection(f"{address.folder} is no Qdrant folder, so there is no collection to read.")
    if not is_there and not trace:
        return QdrantClient(":memory:")
    try:
        Path(address.folder).mkdir(parents=True, exist_ok=True)
        return QdrantClient(path=address.folder)
    except RuntimeError as exc:
        raise folder_in_use(address.folder) from exc
    except (OSError, ValueError, KeyError) as exc:
        raise StoreRefused(f"The Qdrant folder {address.folder} cannot be opened: {exc}") from exc


@contextmanager
def _key_told(address: Address) -> Iterator[None]:
    """For the block, a refused key is told with where this command takes it from."""
    try:
        yield
    except StoreRefused as exc:
        if getattr(exc.__cause__, "status_code", None) not in _KEY_STATUS:
            raise
        given = "the key" if address.api_key else "to answer without a key"
        raise StoreRefused(
            f"Qdrant at {address.shown} refuses {given}: set the right one in QDRANT_API_KEY, or in the variable that "
            "--qdrant-key-variable names."
        ) from exc
