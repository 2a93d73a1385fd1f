"""What a job would do: checked against the platform and the store, before anything is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zooserve.errors import BadInput, JobRefused, NoSuchCollection, SpaceMismatch, UnmarkedCollection
from zooserve.sdk.blocking.client import Zoo
from zooserve.sdk.index import DENSE, METADATA_KEY, SPARSE, Index, Sparse, index_of, physical_name, require_name
from zooserve_cli.reembedding.files import FileSource, stamps
from zooserve_cli.reembedding.job import Definition
from zooserve_cli.reembedding.layout import JOB_KEY, Layout, new_layout, sparse_params
from zooserve_cli.reembedding.sources import CollectionSource, Source
from zooserve_cli.reembedding.store import Address, Store

__all__ = ["Plan", "Request", "planned"]

_PROBE = "zooserve"
_TEXT = "text"


@dataclass(frozen=True)
class Request:
    """What the command was asked."""

    collection: str
    to: str
    address: Address
    files: tuple[Path, ...] = ()
    alias: str | None = None
    text_field: str | None = None
    id_field: str = "id"
    vector: str | None = None
    sparse: str | None = None
    part_rows: int = 256
    adopt: bool = False
    restart: bool = False
    accept_dead: bool = False
    texts_per_s: float = 0.0
    workers: int = 2
    ray: str | None = None
    patience_s: float = 300.0

    @property
    def name(self) -> str:
        """The alias that is switched."""
        return self.alias or self.collection


@dataclass(frozen=True)
class Plan:
    """A job to be, or to be continued."""

    definition: Definition
    index: Index
    """Of the new collection."""
    target: str
    previous: str
    """What a rollback leads back to; empty if there is nothing."""
    led_to: str
    """What the alias leads to now; empty if to nothing."""
    layout: Layout
    """Of the new collection."""
    vector: str
    sparse: str
    """The sparse vector's name, empty where none is made."""
    kept: tuple[str, ...]
    """Vectors that are carried over."""
    source: Source = field(repr=False)
    rows: int = 0
    """How many the source has."""

    @property
    def text_field(self) -> str:
        """Where in the new collection's payloads the texts are."""
        return self.index.text_key

    def metadata(self, job: str) -> dict[str, Any]:
        """Of the new collection: what the old one said of other things, what it holds, and where it is from."""
        others = {key: value for key, value in self.layout.metadata.items() if key not in (METADATA_KEY, JOB_KEY)}
        return {**others, **self.index.metadata, JOB_KEY: {"job": job, "previous": self.previous}}


def planned(zoo: Zoo, store: Store, request: Request) -> Plan:
    """Raises what is wrong with the request: see docs/reembed.md."""
    require_name(request.name)
    return _of_files(zoo, store, request) if request.files else _of_collection(zoo, store, request)


def _of_files(zoo: Zoo, store: Store, request: Request) -> Plan:
    if request.alias is not None:
        raise BadInput("--alias is for a collection that is read; with --from the name itself is the alias.")
    _refuse_plain(store, request.name)
    files = stamps(request.files)
    index = _index(zoo, request.to, request.sparse, _TEXT)
    text_field = request.text_field or _TEXT
    source = FileSource(files, text_field, request.id_field, request.part_rows)
    rows, led_to = source.count(), store.led_to(request.name)
    if rows == 0:
        raise JobRefused("There is not one row in the files, so there is nothing to embed.")
    return Plan(
        definition=_definition(request, index, "", DENSE, text_field).model_copy(update={"files": files}),
        index=index,
        target=physical_name(request.name, index),
        previous=led_to,
        led_to=led_to,
        layout=new_layout(index, {}),
        vector=DENSE,
        sparse=SPARSE if index.sparse else "",
        kept=(),
        source=source,
        rows=rows,
    )


def _of_collection(zoo: Zoo, store: Store, request: Request) -> Plan:
    physical = _source(store, request)
    held = Layout.of(store.info(physical))
    marked = _marked(physical, held, adopt=request.adopt)
    vector = _vector(physical, held, request.vector)
    _refuse_other_size(physical, held.dense[vector], marked)
    text_field = request.text_field or (marked.text_key if marked else _TEXT)
    sparse_model = request.sparse or (marked.sparse.model if marked and marked.sparse else None)
    index = _index(zoo, request.to, sparse_model, text_field)
    sparse = SPARSE if index.sparse else ""
    kept = tuple(sorted(name for name in (*held.dense, *held.sparse) if name not in (vector, sparse)))
    target = physical_name(request.name, index)
    if target == physical and store.aliases().get(request.name) != target:
        raise JobRefused(
            f"{physical} holds vectors of this space already, and is what would be built for the alias {request.name}: "
            "there is nothing to embed. Point the alias at it in Qdrant."
        )
    rows, led_to = store.count(physical), store.led_to(request.name)
    if rows == 0:
        raise JobRefused(
            f"The collection {physical} is empty: there is nothing to embed. Delete it, and the next use of the name "
            f"creates one for {index.release}."
        )
    return Plan(
        definition=_definition(request, index, physical, vector, text_field),
        index=index,
        target=target,
        previous=led_to or (physical if request.alias else ""),
        led_to=led_to,
        layout=_layout(held, vector, sparse, index),
        vector=vector,
        sparse=sparse,
        kept=kept,
        source=CollectionSource(store, physical, text_field, kept, request.part_rows),
        rows=rows,
    )


def _source(store: Store, request: Request) -> str:
    """The collection that is read. Raises where the name leads to none, or could not be switched."""
    place = store.place(request.collection)
    if place is None:
        raise NoSuchCollection(
            f"There is neither a collection nor an alias {request.collection} at {store.address.shown}; there are: "
            f"{_listed([*store.aliases(), *store.collections()])}. To make one of files, give them with --from."
        )
    if request.alias is None and not place.by_alias:
        raise JobRefused(
            f"{request.collection} is a collection itself, not an alias, and Qdrant gives no alias the name of a "
            "collection, so that it cannot be switched. Take another name for those who search: "
            f"--alias {request.collection}-live"
        )
    if request.alias is not None:
        _refuse_plain(store, request.alias)
    return place.physical


def _refuse_plain(store: Store, name: str) -> None:
    if name in store.collections():
        raise JobRefused(
            f"{name} is a collection, so that no alias can have the name. Take another name, or read that collection: "
            f"zooserve reembed {name} --alias {name}-live"
        )


def _marked(physical: str, held: Layout, *, adopt: bool) -> Index | None:
    marked = index_of(physical, held.metadata)
    if marked is None and not adopt:
        raise UnmarkedCollection(
            f"The collection {physical} does not say which model's vectors it holds; it was not made by zooserve. If "
            "its texts are what you mean, give --adopt (and --text-field, if they are not under `text`): the old "
            "collection stays as it is, the new one says what it holds."
        )
    return marked


def _vector(physical: str, held: Layout, asked: str | None) -> str:
    if asked is not None and asked in held.dense:
        return asked
    if asked is None and DENSE in held.dense:
        return DENSE
    if asked is None and len(held.dense) == 1:
        return next(iter(held.dense))
    names = _listed(held.dense)
    if asked is None:
        raise JobRefused(
            f"The points of {physical} have several vectors ({names}): say which is made anew, --vector NAME."
        )
    raise JobRefused(f"The points of {physical} have no vector {asked!r}; they have: {names}.")


def _refuse_other_size(physical: str, params: Any, marked: Index | None) -> None:
    if getattr(params, "multivector_config", None) is not None:
        raise JobRefused(f"The vectors of {physical} are lists of vectors; a text has one here. Choose with --vector.")
    if marked is not None and params.size != marked.dimensions:
        raise SpaceMismatch(
            f"The metadata of {physical} say {marked.release} with {marked.dimensions} dimensions, and its vectors "
            f"have {params.size}: one of the two is wrong, and who searches it gets nonsense. Mend the metadata, or "
            "read the texts out of it into files and give those with --from."
        )


def _index(zoo: Zoo, to: str, sparse_model: str | None, text_key: str) -> Index:
    """What the model makes, by a text that it embeds now."""
    card = zoo.model(to)
    if card.task != "embed":
        raise BadInput(f"{card.name} is for {card.task}: --to needs a model that embeds ({_listed(_embedding(zoo))}).")
    made = zoo.embed([_PROBE], model=to)
    sparse = None
    if sparse_model is not None:
        words = zoo.embed_sparse([_PROBE], model=sparse_model)
        sparse = Sparse(words.model, words.version, words.space)
    return Index(made.space, made.model, made.version, made.dimensions, sparse, text_key)


def _embedding(zoo: Zoo) -> list[str]:
    return [card.name for card in zoo.models() if card.task == "embed"]


def _layout(held: Layout, vector: str, sparse: str, index: Index) -> Layout:
    """The source's, with the vectors that are made anew in their new size."""
    dense = dict(held.dense)
    dense[vector] = dense[vector].model_copy(update={"size": index.dimensions})
    sparses = dict(held.sparse)
    if sparse and sparse not in sparses:
        sparses[sparse] = sparse_params()
    return Layout(dense, sparses, held.extra, held.indexes, held.metadata)


def _definition(request: Request, index: Index, source: str, vector: str, text_field: str) -> Definition:
    sparse = index.sparse
    return Definition(
        collection=request.name,
        source=source,
        files=(),
        to=index.release,
        space=index.space,
        sparse=f"{sparse.model}@{sparse.version} {sparse.space}" if sparse else "",
        vector=vector,
        text_field=text_field,
        id_field=request.id_field if request.files else "",
        part_rows=request.part_rows,
    )


def _listed(names: Mapping[str, Any] | list[str]) -> str:
    return ", ".join(sorted(repr(name) for name in names)[:8]) or "none"
