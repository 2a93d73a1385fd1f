# Generated from ../aio/opening.py by `make sdk`: edit it there.
"""Opening a collection: created, adopted or found, and held to be in the space of the model that is asked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zooserve.errors import BadInput, InputTooLong, ModelNotFound, NoSuchCollection, SpaceMismatch, StoreRefused
from zooserve.sdk.blocking.stores import Store
from zooserve.sdk.budget import Budget, left
from zooserve.sdk.index import (
    Index,
    Place,
    Sparse,
    index_of,
    mismatch,
    physical_name,
    require_marked,
    require_name,
)
from zooserve.sdk.points import dense_size, has_sparse
from zooserve.sdk.results import ModelCard

if TYPE_CHECKING:
    from zooserve.sdk.blocking.client import Zoo

__all__ = ["Opened", "Terms", "opened"]

_DEFAULT_MODEL = "embed"
_SAMPLE = 8
_SAME_COSINE = 0.99
"""Two runs of one model agree beyond this; its 8-bit sister, which is a space of its own, does not."""


@dataclass(frozen=True)
class Terms:
    """What the caller asks of a collection. No model is the collection's own; a new one gets `embed`."""

    name: str
    model: str | None = None
    sparse: str | None = None
    create: bool = True
    adopt: bool = False
    text_key: str = "text"


@dataclass(frozen=True)
class Opened:
    """A collection that may be used: the models to ask are those whose vectors it holds."""

    place: Place
    index: Index
    model: str
    sparse_model: str | None


def opened(zoo: "Zoo", store: Store, terms: Terms, budget: Budget) -> Opened:
    """Raises NoSuchCollection, UnmarkedCollection, SpaceMismatch, or what the platform or Qdrant fail with."""
    place = store.place(terms.name)
    if place is None:
        return _created(zoo, store, terms, budget)
    info = store.info(place.physical)
    size = dense_size(place.physical, info)
    held = index_of(place.physical, info.config.metadata)
    adopting = held is None and terms.adopt
    if adopting:
        held = _adoptable(zoo, store, terms, place, size, budget)
    index = require_marked(place.physical, held)
    if size != index.dimensions or (index.sparse is not None and not has_sparse(info)):
        raise SpaceMismatch(
            f"The collection {place.physical} says that it holds {index.release}'s vectors of {index.dimensions} "
            f"numbers{' and sparse ones' if index.sparse else ''}, and was made for {size}"
            f"{'' if has_sparse(info) else ' and no sparse ones'}: its metadata is not its own. Embed it anew."
        )
    model = _model_of(zoo, terms, index, budget)
    known = Opened(place, index, model, _sparse_of(zoo, terms, index, budget))
    if adopting:  # last of all: what is refused is left as it was
        store.mark(place.physical, index)
        _require_kept(store, place.physical, index)
    return known


def _created(zoo: "Zoo", store: Store, terms: Terms, budget: Budget) -> Opened:
    if not terms.create:
        raise NoSuchCollection(
            f"Neither a collection nor an alias is called {terms.name} in {store.shown}. Leave create=False out to "
            "create it, or see whether this is the right place and name."
        )
    require_name(terms.name)
    card = _card(zoo, terms.model or _DEFAULT_MODEL, "embed", budget)
    sparse = None if terms.sparse is None else _card(zoo, terms.sparse, "sparse", budget)
    index = _index(card, sparse, "text")
    physical = physical_name(terms.name, index)
    store.create(physical, index)
    held = _require_kept(store, physical, index)
    store.point_alias(terms.name, physical)
    return Opened(Place(terms.name, physical), held, terms.model or card.name, None if sparse is None else terms.sparse)


def _require_kept(store: Store, physical: str, index: Index) -> Index:
    """What the collection says of itself now. Raises StoreRefused if nothing, SpaceMismatch if something else."""
    held = index_of(physical, (store.info(physical)).config.metadata)
    if held is None:
        raise StoreRefused(
            f"Qdrant at {store.shown} does not keep what {physical} says of its vectors, or somebody else made that "
            "collection. A server that is older than 1.16 has no metadata of collections: use a newer one. Else delete "
            "it, or take another name."
        )
    if (held.space, held.sparse) != (index.space, index.sparse):
        raise mismatch(physical, held, index.release, index.space)
    return held


def _adoptable(zoo: "Zoo", store: Store, terms: Terms, place: Place, size: int, budget: Budget) -> Index:
    """That the collection holds this model's vectors, once their size and a sample of them say so; not yet written."""
    name = terms.model or _DEFAULT_MODEL
    card = _card(zoo, name, "embed", budget)
    index = _index(card, None, terms.text_key)
    if size != index.dimensions:
        raise SpaceMismatch(
            f"The collection {place.physical} holds vectors of {size} numbers; {index.release} makes those of "
            f"{index.dimensions}, so they are not its own. Adopt it with the model that made them, or embed its texts "
            "anew under another name."
        )
    for text, vector in store.sample(place.physical, terms.text_key, _SAMPLE):
        likeness = _likeness(zoo, name, index.space, text, vector, budget)
        if likeness is not None and likeness < _SAME_COSINE:
            raise SpaceMismatch(
                f"The collection {place.physical} holds a vector whose cosine with that of {index.release} for the "
                f"same text is {likeness:.2f}: another model made it, or the text is not under {terms.text_key!r}. "
                "Adopt it with the model that made it, or embed its texts anew under another name."
            )
    return index


def _likeness(zoo: "Zoo", name: str, space: str, text: str, vector: Sequence[float], budget: Budget) -> float | None:
    """The cosine of a stored vector and one made now; None for a text that the model does not read whole."""
    try:
        made = zoo.embed(text, model=name, space=space, input_type="passage", timeout_s=left(budget))
    except InputTooLong:
        return None
    lengths = math.hypot(*made[0]) * math.hypot(*vector)
    return sum(a * b for a, b in zip(made[0], vector, strict=True)) / lengths if lengths else 0.0


def _model_of(zoo: "Zoo", terms: Terms, index: Index, budget: Budget) -> str:
    """What to ask for so that vectors are of the collection's space. Raises SpaceMismatch where nothing is."""
    met: ModelCard | None = None
    for name in [terms.model] if terms.model else [index.model, index.release]:
        try:
            met = _card(zoo, name, "embed", budget)
        except ModelNotFound:
            if terms.model:
                raise
            continue
        if met.space == index.space:
            return name
    if met is None:
        raise SpaceMismatch(
            f"The collection {terms.name} holds vectors of {index.release} (space {index.space}), which the platform "
            f"at {zoo.base_url} does not serve. Enable that model, or embed the collection anew with one that it "
            f"serves: zooserve reembed {terms.name} --to MODEL@VERSION"
        )
    raise mismatch(terms.name, index, f"{met.name}@{met.version}", str(met.space))


def _sparse_of(zoo: "Zoo", terms: Terms, index: Index, budget: Budget) -> str | None:
    if index.sparse is None:
        if terms.sparse is None:
            return None
        raise SpaceMismatch(
            f"The collection {terms.name} has no sparse vectors beside those of {index.release} (space {index.space}), "
            f"and {terms.sparse} is to be searched in them. Leave `sparse` out, or fill another collection with it."
        )
    name = terms.sparse or index.sparse.model
    card = _card(zoo, name, "sparse", budget)
    if card.space != index.sparse.space:
        raise SpaceMismatch(
            f"The collection {terms.name} holds sparse vectors of {index.sparse.model}@{index.sparse.version} (space "
            f"{index.sparse.space}); {card.name}@{card.version} makes those of space {card.space}, which cannot be "
            "compared with them. Fill another collection with it."
        )
    return name


def _card(zoo: "Zoo", name: str, task: str, budget: Budget) -> ModelCard:
    card = zoo.model(name, timeout_s=left(budget))
    if card.task != task or card.space is None or card.dimensions is None:
        raise BadInput(
            f"{name} is a model of the task {card.task}; a collection needs one of the task {task} here.",
            param="model" if task == "embed" else "sparse",
        )
    return card


def _index(card: ModelCard, sparse: ModelCard | None, text_key: str) -> Index:
    beside = None if sparse is None else Sparse(sparse.name, sparse.version, str(sparse.space))
    return Index(str(card.space), card.name, card.version, card.dimensions or 0, beside, text_key)
