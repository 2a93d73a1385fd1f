"""What a collection says of its vectors: its names, its metadata, and what the alias of a name leads to.

Pure: no Qdrant client is known here, so that whatever reads or writes collections agrees by the same few functions.

The vectors of the name `docs` lie in a collection `docs--bc7ce5e304176975`, named after their embedding space, and
`docs` is an alias on it: another space is another collection, and changing over is one switch of the alias.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from zooserve.errors import BadInput, NoSuchCollection, SpaceMismatch, UnmarkedCollection

__all__ = [
    "DENSE",
    "METADATA_KEY",
    "RESERVED_PAYLOAD",
    "SCHEMA",
    "SPARSE",
    "Index",
    "Place",
    "Sparse",
    "behind",
    "find",
    "index_of",
    "mismatch",
    "physical_name",
    "require_marked",
    "require_name",
]

METADATA_KEY = "zooserve"
"""Under which the metadata of a collection has our part."""
SCHEMA = 1
DENSE = ""
"""The dense vector has no name, whether there is a sparse one beside it or not."""
SPARSE = "sparse"
"""The name of the sparse vector."""
RESERVED_PAYLOAD = frozenset({"text", "sha256", "document", "chunk", "id"})
"""Keys of a point's payload that are ours: the text, its hash, and where it is from."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_SPACE = re.compile(r"[0-9a-f]{16}")
_BEHIND = re.compile(r"--[0-9a-f]{16}(-[0-9a-f]{16})?")
_PHYSICAL = re.compile(f".*{_BEHIND.pattern}")


@dataclass(frozen=True)
class Sparse:
    """The sparse model beside the dense one; `space` is 16 hex digits."""

    model: str
    version: str
    space: str


@dataclass(frozen=True)
class Index:
    """Which vectors a collection holds. `space` is the embedding space's fingerprint, 16 hex digits."""

    space: str
    model: str
    version: str
    dimensions: int
    sparse: Sparse | None = None
    text_key: str = "text"
    """The key of the payload that holds a point's text; another than ours only in a collection that was adopted."""

    @property
    def release(self) -> str:
        """`embed@1`."""
        return f"{self.model}@{self.version}"

    @property
    def metadata(self) -> dict[str, Any]:
        """For `create_collection(metadata=...)` and `update_collection(metadata=...)`."""
        said: dict[str, Any] = {
            "schema": SCHEMA,
            "space": self.space,
            "model": self.model,
            "version": self.version,
            "dimensions": self.dimensions,
            "sparse": None if self.sparse is None else vars(self.sparse).copy(),
        }
        if self.text_key != "text":
            said["text_key"] = self.text_key
        return {METADATA_KEY: said}


@dataclass(frozen=True)
class Place:
    """Where a name leads: a collection, by an alias or because it is called so."""

    name: str
    physical: str

    @property
    def by_alias(self) -> bool:
        """Whether the name can be switched to another collection."""
        return self.name != self.physical


def require_name(name: str) -> None:
    """Raise BadInput unless a collection of ours can be created under this name.

    >>> require_name("docs")
    """
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{name[:80]!r} cannot be the name of a collection: take 1 to 200 of A-Z a-z 0-9 . _ -, and begin with "
            "neither a dot nor a dash.",
            param="name",
        )
    if _PHYSICAL.fullmatch(name):
        raise BadInput(
            f"{name!r} ends as the collections behind an alias do: take the name before the `--`.", param="name"
        )


def physical_name(name: str, index: Index) -> str:
    """What the collection behind the alias `name` is called.

    >>> physical_name("docs", Index("bc7ce5e304176975", "embed", "1", 384))
    'docs--bc7ce5e304176975'
    """
    spaces = [index.space] if index.sparse is None else [index.space, index.sparse.space]
    return f"{name}--{'-'.join(spaces)}"


def find(name: str, collections: Collection[str], aliases: Mapping[str, str]) -> Place | None:
    """Where `name` leads, None if to nothing yet. Raises NoSuchCollection where an alias points at nothing.

    An alias may point at a collection of any name: what that holds is told by its metadata.

    >>> find("docs", {"docs--bc7ce5e304176975"}, {"docs": "docs--bc7ce5e304176975"})
    Place(name='docs', physical='docs--bc7ce5e304176975')
    """
    if name in aliases:
        physical = aliases[name]
        if physical not in collections:
            raise NoSuchCollection(
                f"The alias {name} points at {physical}, and there is no such collection. Point it at one that is "
                f"there ({_listed(_candidates(name, collections))}), or delete the alias: the next use creates anew."
            )
        return Place(name, physical)
    return Place(name, name) if name in collections else None


def behind(name: str, collections: Collection[str], aliases: Mapping[str, str]) -> list[str]:
    """The collections that only this name leads to or has led to: what re-embeddings left, then where it leads now.

    >>> behind("docs", {"docs--bc7ce5e304176975", "docs--0123456789abcdef"}, {"docs": "docs--bc7ce5e304176975"})
    ['docs--0123456789abcdef', 'docs--bc7ce5e304176975']
    """
    of_others = {physical for alias, physical in aliases.items() if alias != name}
    leads = aliases.get(name, name)
    own = [held for held in _candidates(name, collections) if _BEHIND.fullmatch(held[len(name) :])]
    left = [held for held in own if held != leads and held not in of_others]
    return [*left, *([leads] if leads in collections and (leads == name or leads not in of_others) else [])]


def index_of(collection: str, metadata: Mapping[str, Any] | None) -> Index | None:
    """What the metadata says, None if it says nothing of us. Raises UnmarkedCollection where it cannot be read."""
    said = (metadata or {}).get(METADATA_KEY)
    if said is None:
        return None
    try:
        return _parsed(said)
    except (KeyError, TypeError, ValueError) as exc:
        raise UnmarkedCollection(
            f"The metadata of the collection {collection} has a part {METADATA_KEY!r} that this version cannot read "
            f"({_reason(exc)}). It was written by a newer version, or by hand: use that version, or mend it."
        ) from exc


def require_marked(collection: str, index: Index | None) -> Index:
    """The index. Raises UnmarkedCollection, with the ways out, where there is none."""
    if index is None:
        raise UnmarkedCollection(
            f"The collection {collection} does not say which model's vectors it holds, so nothing may be searched in "
            "it. If you know the model, open it once with adopt=True and model=…: that writes it down. If you do not, "
            "embed its texts anew under another name."
        )
    return index


def mismatch(name: str, held: Index, release: str, space: str) -> SpaceMismatch:
    """The error for a collection of one space that is met by the vectors of another; it says the way out."""
    return SpaceMismatch(
        f"The collection {name} holds vectors of {held.release} (space {held.space}); {release} makes those of space "
        f"{space}, which cannot be compared with them. Ask with model={held.release!r}, if it is served, or embed the "
        f"collection anew: zooserve reembed {name} --to {release}"
    )


def _candidates(name: str, collections: Collection[str]) -> list[str]:
    return sorted(held for held in collections if held.startswith(f"{name}--"))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) if names else "none of its own is left"


def _parsed(said: Any) -> Index:
    if said["schema"] != SCHEMA:
        raise ValueError(f"schema {said['schema']!r} instead of {SCHEMA}")
    sparse = said.get("sparse")
    return Index(
        space=_space(said["space"]),
        model=_word(said["model"], "model"),
        version=_word(said["version"], "version"),
        dimensions=_positive(said["dimensions"]),
        sparse=None if sparse is None else _sparse(sparse),
        text_key=_word(said.get("text_key", "text"), "text_key"),
    )


def _sparse(said: Any) -> Sparse:
    return Sparse(_word(said["model"], "sparse.model"), _word(said["version"], "sparse.version"), _space(said["space"]))


def _space(value: Any) -> str:
    if not isinstance(value, str) or not _SPACE.fullmatch(value):
        raise ValueError(f"{value!r} instead of a space of 16 hex digits")
    return value


def _word(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is {value!r}")
    return value


def _positive(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"dimensions is {value!r}")
    return value


def _reason(exc: Exception) -> str:
    return f"{exc.args[0]!r} is missing" if isinstance(exc, KeyError) else str(exc)
