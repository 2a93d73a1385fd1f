"""Back to the collection that an alias led to before."""

from dataclasses import dataclass
from typing import Any

from zooserve.errors import JobRefused, NoSuchCollection
from zooserve_cli.reembedding.layout import JOB_KEY, Layout
from zooserve_cli.reembedding.store import Store

__all__ = ["RolledBack", "roll_back", "way_back"]


@dataclass(frozen=True)
class RolledBack:
    """From where to where, and how many points each has."""

    collection: str
    left: str
    restored: str
    points_left: int
    points_restored: int

    def as_json(self) -> dict[str, Any]:
        """For a script."""
        return {**vars(self), "outcome": "rolled back"}


def way_back(store: Store, alias: str) -> RolledBack:
    """What `roll_back` would do. Raises JobRefused where there is no way back."""
    place = store.place(alias)
    if place is None:
        raise NoSuchCollection(f"There is no alias {alias} at {store.address.shown}.")
    if not place.by_alias:
        raise JobRefused(f"{alias} is a collection itself, so that nothing was switched under this name.")
    said = Layout.of(store.info(place.physical)).metadata.get(JOB_KEY) or {}
    previous = said.get("previous")
    if not previous:
        raise JobRefused(
            f"{alias} leads to {place.physical}, which was not made by re-embedding another collection: there is "
            "nothing to go back to."
        )
    if previous not in store.collections():
        raise JobRefused(f"{place.physical} was made in the place of {previous}, which is no more.")
    return RolledBack(alias, place.physical, previous, store.count(place.physical), store.count(previous))


def roll_back(store: Store, alias: str) -> RolledBack:
    """Switch the alias back, in one step; both collections stay. Raises JobRefused where there is no way back."""
    back = way_back(store, alias)
    store.switch(alias, back.restored, back.left)
    return back
