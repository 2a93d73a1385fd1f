# Generated from ../aio/stores.py by `make sdk`: edit it there.
"""Qdrant as collections use it: a folder of this machine, or a server. Every failure is an error of zooserve.errors."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from sqlite3 import Error as SqliteError
from typing import Any

from zooserve.errors import BadInput, ClientClosed, StoreRefused
from zooserve.sdk.blocking.concurrency import Lock
from zooserve.sdk.index import DENSE, SPARSE, Index, Place, find
from zooserve.sdk.local_mode import commit_without_waiting
from zooserve.sdk.points import ids_of, qdrant_models
from zooserve.sdk.proxies import direct, usable_proxies
from zooserve.sdk.store_faults import folder_in_use, translated

__all__ = ["Store", "StoreAddress", "Stores", "Writer"]

_TIMEOUT_S = 60
_POINTS_AT_ONCE = 256
"""A server takes 32 MB in one request: 256 vectors of 4,096 numbers as JSON are about 20."""
_PAGE = 1000
"""Points that one call scrolls or deletes by their ids."""


@dataclass(frozen=True)
class StoreAddress:
    """Where a collection is: a folder, a server, or the client that the caller brought."""

    path: str | None = None
    url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    client: Any = None

    @classmethod
    def of(cls, path: "str | Path | None", url: str | None, api_key: str | None, client: Any) -> "StoreAddress":
        """Raises BadInput unless exactly one of folder, server and client is given, and the key with a server alone."""
        if sum(one is not None for one in (path, url, client)) != 1:
            raise BadInput(
                "A collection is in one place: give `path`, a folder for Qdrant's local mode, or `url`, a Qdrant "
                "server's address, or `client`, a Qdrant client.",
                param="path",
            )
        if api_key is not None and url is None:
            raise BadInput("`api_key` is for a Qdrant server: give it with `url`.", param="api_key")
        if url is not None and (not isinstance(url, str) or not url.strip()):
            raise BadInput(f"`url` is {url!r}; it must be a Qdrant server's address.", param="url")
        if path is not None and not isinstance(path, str | PathLike):
            raise BadInput(f"`path` is {path!r}; it must be a folder.", param="path")
        if client is not None:
            _require_client(client)
        return cls(None if path is None else str(Path(path).expanduser().resolve()), url, api_key, client)

    @property
    def shown(self) -> str:
        """For people; never the key."""
        return self.path or self.url or "the client given"

    @property
    def is_local(self) -> bool:
        """Whether it is Qdrant's local mode: in this process, without a server."""
        if self.client is None:
            return self.path is not None
        options = self.client.init_options
        return options.get("path") is not None or options.get("location") == ":memory:"


class Stores:
    """The Qdrant clients of one Zoo: one for each address, since two on one folder would shut each other out."""

    def __init__(self) -> None:
        self._open: dict[StoreAddress, Store] = {}
        self._lock = Lock()
        self._closed = False

    def at(self, address: StoreAddress) -> "Store":
        """The store, opened if it is not. Raises StoreUnavailable where another process holds the folder."""
        with self._lock:
            if self._closed:
                raise ClientClosed(
                    "This collection's client was closed; make a new one, or keep inside its `with` block."
                )
            if address not in self._open:
                self._open[address] = Store(address)
            return self._open[address]

    def let_go(self, address: StoreAddress) -> None:
        """Of a folder or of connections; the next use opens them again."""
        with self._lock:  # until the folder is free: whoever opens it meanwhile would find it held
            store = self._open.pop(address, None)
            if store is not None:
                store.close()

    def close(self) -> None:
        """Let go of all of them, for good."""
        with self._lock:
            self._closed = True
        for address in list(self._open):
            self.let_go(address)


class Writer:
    """One upsert. In the local mode this process is the only one, and knows whether two have met."""

    def __init__(self, is_local: bool) -> None:
        self._is_local = is_local
        self.met_another = False

    @property
    def is_alone(self) -> bool:
        """Whether nobody else has written since it began, for certain."""
        return self._is_local and not self.met_another


class Store:
    """What collections do with one Qdrant client."""

    def __init__(self, address: StoreAddress) -> None:
        self.shown = address.shown
        self._is_local = address.is_local
        self._owned = address.client is None
        self._client = _connect(address) if address.client is None else address.client
        # The local mode is plain Python over lists: one call at a time.
        self._lock = Lock()
        self._url = address.url
        self._writers: dict[str, list[Writer]] = {}
        self._counting = Lock()

    def close(self) -> None:
        """Let go of the folder or the connections; a client that was given stays open."""
        if self._owned:
            with self._call():  # never in the middle of another's call
                self._client.close()

    @contextmanager
    def writing(self, physical: str) -> Iterator["Writer"]:
        """In the block this upsert is known to the others that this process has of the collection."""
        writer = Writer(self._is_local)
        with self._counting:
            beside = self._writers.setdefault(physical, [])
            for one in (writer, *beside) if beside else ():
                one.met_another = True
            beside.append(writer)
        try:
            yield writer
        finally:
            beside.remove(writer)

    def leads(self, name: str, *, by_alias: bool) -> str | None:
        """What the alias points at; a name that is a collection's own leads to itself, until that is gone."""
        with self._call():
            if not by_alias:
                return name if self._client.collection_exists(name) else None
            aliases = (self._client.get_aliases()).aliases
        return next((held.collection_name for held in aliases if held.alias_name == name), None)

    def place(self, name: str) -> Place | None:
        """Where the name leads. Raises NoSuchCollection where its alias points at nothing."""
        return find(name, *self.held())

    def held(self) -> tuple[set[str], dict[str, str]]:
        """The names of all collections, and where each alias points."""
        with self._call():
            aliases = (self._client.get_aliases()).aliases
            collections = (self._client.get_collections()).collections
        return {held.name for held in collections}, {held.alias_name: held.collection_name for held in aliases}

    def info(self, physical: str) -> Any:
        """Its CollectionInfo: metadata, vectors, how many points."""
        with self._call():
            return self._client.get_collection(physical)

    def create(self, physical: str, index: Index) -> None:
        """An empty collection that says what it holds. One that is there already, whoever made it, will do."""
        models = qdrant_models()
        sparse = None if index.sparse is None else {SPARSE: models.SparseVectorParams()}
        try:
            with self._call():
                self._client.create_collection(
                    physical,
                    vectors_config=models.VectorParams(size=index.dimensions, distance=models.Distance.COSINE),
                    sparse_vectors_config=sparse,
                    metadata=index.metadata,
                )
        except StoreRefused:
            if self.leads(physical, by_alias=False) is None:
                raise
        self._tune(physical)

    def point_alias(self, name: str, physical: str) -> None:
        """Make the name lead to this collection, in one step."""
        models = qdrant_models()
        alias = models.CreateAlias(collection_name=physical, alias_name=name)
        with self._call():
            self._client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])

    def mark(self, physical: str, index: Index) -> None:
        """Write into a collection that is there what it holds."""
        with self._call():
            self._client.update_collection(physical, metadata=index.metadata)

    def drop(self, name: str, collections: Sequence[str]) -> None:
        """Remove these collections, then the alias if it has not gone with its own: it is no use by itself."""
        for physical in collections:
            with self._call():
                self._client.delete_collection(physical)
        models = qdrant_models()
        with self._call():
            if any(held.alias_name == name for held in (self._client.get_aliases()).aliases):
                alias = models.DeleteAlias(alias_name=name)
                self._client.update_collection_aliases([models.DeleteAliasOperation(delete_alias=alias)])

    def payloads(self, physical: str, points: Sequence[int | str], without: str) -> dict[int | str, Any]:
        """The payloads of those of the points that are there, without the key of the text."""
        leave_out = qdrant_models().PayloadSelectorExclude(exclude=[without])
        with self._call():
            records = self._client.retrieve(physical, ids=list(points), with_payload=leave_out)
        return {record.id: record.payload or {} for record in records}

    def upsert(self, physical: str, points: Sequence[Any]) -> None:
        """PointStructs, stored when this returns."""
        for start in range(0, len(points), _POINTS_AT_ONCE):
            with self._call():
                self._client.upsert(physical, list(points[start : start + _POINTS_AT_ONCE]), wait=True)

    def overwrite_payloads(self, physical: str, payloads: Sequence[tuple[int | str, dict[str, Any]]]) -> None:
        """Other payloads for points that stay as they are."""
        models = qdrant_models()
        steps = [
            models.OverwritePayloadOperation(overwrite_payload=models.SetPayload(payload=payload, points=[point]))
            for point, payload in payloads
        ]
        with self._call():
            self._client.batch_update_points(physical, steps, wait=True)

    def count(self, physical: str, where: Any = None) -> int:
        """How many points there are, of the filter if there is one."""
        with self._call():
            return int((self._client.count(physical, count_filter=where, exact=True)).count)

    def remove(self, physical: str, where: Any) -> int:
        """Delete what the filter matches; how many that were."""
        models = qdrant_models()
        found = self.count(physical, where)
        if found:
            with self._call():
                self._client.delete(physical, models.FilterSelector(filter=where), wait=True)
        return found

    def remove_but(self, physical: str, kept: Callable[[int | str], bool]) -> int:
        """Delete every point that is not to be kept; how many that were. Holds their ids, about 100 bytes each."""
        going: list[int | str] = []
        page = None
        while True:
            records, page = self._page(physical, page, None, with_payload=False)
            going += [point for point in ids_of(records) if not kept(point)]
            if page is None:
                break
        return self.remove_points(physical, going)

    def remove_points(self, physical: str, points: Collection[int | str]) -> int:
        """Delete these; how many that were."""
        going = list(points)
        for start in range(0, len(going), _PAGE):
            with self._call():
                self._client.delete(physical, going[start : start + _PAGE], wait=True)
        return len(going)

    def documents(self, physical: str, where: Any) -> dict[int | str, str]:
        """The points that the filter matches, and of which document each is."""
        found: dict[int | str, str] = {}
        page = None
        while True:
            records, page = self._page(physical, page, where, with_payload=["document"])
            found |= {record.id: str((record.payload or {}).get("document")) for record in records}
            if page is None:
                return found

    def _page(self, physical: str, page: Any, where: Any, *, with_payload: Any) -> tuple[Any, Any]:
        """Records from this place on, and the next place, None at the end."""
        with self._call():
            return self._client.scroll(  # type: ignore[no-any-return]
                physical, scroll_filter=where, limit=_PAGE, offset=page, with_payload=with_payload, with_vectors=False
            )

    def sample(self, physical: str, text_key: str, count: int) -> list[tuple[str, Sequence[float]]]:
        """Texts of the first points and their dense vectors, of points that have both."""
        with self._call():
            records, _ = self._client.scroll(physical, limit=count, with_payload=[text_key], with_vectors=True)
        found = []
        for record in records:
            text = (record.payload or {}).get(text_key)
            vector = record.vector.get(DENSE) if isinstance(record.vector, dict) else record.vector
            if isinstance(text, str) and text and vector:
                found.append((text, vector))
        return found

    def query(self, physical: str, limit: int, **query: Any) -> Sequence[Any]:
        """The nearest ScoredPoints, best first."""
        with self._call():
            found = self._client.query_points(physical, limit=limit, with_payload=True, **query)
        return list(found.points)

    def _tune(self, physical: str) -> None:
        """A server finds a document's chunks by an index; the local mode, which has none, commits faster."""
        if self._is_local:
            commit_without_waiting(self._client)
            return
        with self._call():
            self._client.create_payload_index(physical, "document", field_schema="keyword", wait=True)

    @contextmanager
    def _call(self) -> Iterator[None]:
        with translated(self.shown, self._url):
            if not self._is_local:
                yield
                return
            with self._lock:
                yield


def _require_client(client: Any) -> None:
    qdrant_models()
    from qdrant_client import QdrantClient

    if not isinstance(client, QdrantClient):
        raise BadInput(
            f"`client` is of type {type(client).__name__}; it must be a qdrant_client.{QdrantClient.__name__}.",
            param="client",
        )


def _connect(address: StoreAddress) -> Any:
    qdrant_models()
    from qdrant_client import QdrantClient

    if address.url is not None:
        # The API is told by its answers, not by its number: a warning of other versions would be on every start.
        with usable_proxies(), translated(address.shown):
            return QdrantClient(
                url=address.url,
                api_key=address.api_key,
                timeout=_TIMEOUT_S,
                check_compatibility=False,
                **direct(address.url),
            )
    folder = str(address.path)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        client = QdrantClient(path=folder)
    except RuntimeError as exc:
        raise folder_in_use(folder) from exc
    except (OSError, ValueError, KeyError, SqliteError) as exc:
        raise StoreRefused(f"The Qdrant folder {folder} cannot be opened: {exc}") from exc
    commit_without_waiting(client)
    return client
