"""Rules of the release: wrapper and library are of the same one, and it is recorded here."""

from collections.abc import Iterator

from zooserve.leaf.release import Release, known_releases, load_release
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.leaf_directory.reading import LeafDirectory

__all__ = ["RULES", "declared_release", "release_findings"]

UNTOLD = Rule("release-untold", Severity.WARNING, "release.yaml is missing: wrapper and library cannot be compared")
UNKNOWN = Rule(
    "release-unknown", Severity.WARNING, "The library's release is not recorded: its arguments are not checked"
)
MISMATCH = Rule("wrapper-release", Severity.ERROR, "The wrapper is of another release than the library")
CONTAINER = Rule("container-release", Severity.ERROR, "The container carries another release than the library's")
UNKNOWN_KEY = Rule("release-key", Severity.ERROR, "release.yaml has a key that means nothing")

RULES = (UNTOLD, UNKNOWN, MISMATCH, CONTAINER, UNKNOWN_KEY)

_KEYS = ("wrapper", "library", "container")


def declared_release(leaf: LeafDirectory, library: str | None = None) -> Release | None:
    """The record of the library's release, as `library` or else release.yaml names it; None if there is none."""
    wanted = library or leaf.declared.get("library")
    try:
        return load_release(_version(wanted)) if wanted is not None else None
    except LookupError:
        return None


def release_findings(leaf: LeafDirectory, library: str | None = None) -> Iterator[Finding]:
    """What release.yaml says, against itself, the record and 1/model.py."""
    if leaf.is_embedded:
        return
    for key in leaf.declared.values:
        if key not in _KEYS:
            yield UNKNOWN_KEY.at(leaf.declared.place(key), f"it has no key {key}: it has {', '.join(_KEYS)}")
    wanted = library or leaf.declared.get("library")
    if wanted is None:
        yield UNTOLD.at(leaf.source.place(), "add release.yaml with wrapper, library and container, or give --release")
        return
    release = declared_release(leaf, library)
    if release is None:
        known = ", ".join(known_releases())
        yield UNKNOWN.at(leaf.declared.place("library"), f"release {wanted} is not recorded; known: {known}")
    yield from _wrapper(leaf, _version(wanted))
    if release is not None:
        yield from _container(leaf, release)
        yield from _code(leaf, release)


def _wrapper(leaf: LeafDirectory, library: str) -> Iterator[Finding]:
    wrapper = leaf.declared.get("wrapper")
    if wrapper is not None and _version(wrapper) != library:
        yield MISMATCH.at(
            leaf.declared.place("wrapper"),
            f"the wrapper is {wrapper}, the library {library}: take 1/*.py from tag v{library} of NVIDIA/TensorRT-LLM",
        )


def _container(leaf: LeafDirectory, release: Release) -> Iterator[Finding]:
    container = leaf.declared.get("container")
    if container is not None and release.container is not None and container != release.container:
        yield CONTAINER.at(
            leaf.declared.place("container"),
            f"{container} is not the container of {release.release}, which is {release.container}",
        )


def _code(leaf: LeafDirectory, release: Release) -> Iterator[Finding]:
    """1/model.py, where it is in place, by words that tell releases apart."""
    if leaf.wrapper_code is None:
        return
    place = Place(leaf.folder / "1" / "model.py", 1)
    for word in release.wrapper.has:
        if word not in leaf.wrapper_code:
            yield MISMATCH.at(place, f"it does not know {word}, which that of release {release.release} does")
    for word in release.wrapper.has_not:
        if word in leaf.wrapper_code:
            yield MISMATCH.at(place, f"it knows {word}, which that of release {release.release} does not")


def _version(release: object) -> str:
    return str(release).removeprefix("v")
