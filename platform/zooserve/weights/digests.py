"""One digest of all weights that a public model runs on: the same on every machine that has the same."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from zooserve.catalogue import Catalogue, Model
from zooserve.triton.reach import reached_models
from zooserve.weights.lock import WeightsLock, folder_of

__all__ = ["weights_digests"]

_NO_WEIGHTS = (".py", ".pyc", ".yaml")
"""Code and an engine's knobs: they change, and the weights are still the same."""
_COMPILED, _SERVED = "_trt-", "model.plan"
"""In the names of plans that `zooserve engine` built of the weights, and what it makes the fitting one."""
_WHOLE = 64 * 2**20
_ENDS = 2**20


def weights_digests(catalogue: Catalogue, lock: WeightsLock, repository: Path, gguf: Path) -> dict[str, str]:
    """A SHA-256 in hexadecimal by the name of every model of the file, enabled or not.

    Of what the lock builds it tells the sources, not the file that was made of them: that may differ in a byte from one
    machine to another. `gguf` is what the platform's own engine runs; a relative path starts at the repository. Empty
    for a model whose weights are elsewhere: an upstream's, or a leaf's of somebody else.
    """
    everything = (*catalogue.models, *catalogue.disabled)
    reached = reached_models(repository / "zoo", [model for model in everything if model.runs_on == "zoo"])
    locked = _locked(lock, repository)

    def places(model: Model) -> Iterable[str]:
        if model.runs_on == "engine":
            return (str(gguf),)
        return _places(_folders(model, reached), locked, repository)

    return {model.name: _digest(places(model), locked, repository) for model in everything}


def _folders(model: Model, reached: Mapping[str, set[str]]) -> set[str]:
    """The folders of the repository that hold its weights."""
    if model.runs_on == "zoo":
        return {f"zoo/{name}" for name in reached[model.name]}
    elsewhere = model.runs_on == "upstream" or model.chat_backend.leaves or model.tokenizer is None
    return set() if elsewhere else {folder_of(model.tokenizer or "")}


def _digest(places: Iterable[str], locked: Mapping[str, str], repository: Path) -> str:
    # A set: which folder has a file, and whether a bulk twin has it too, is nothing to what it computes.
    identities = {locked.get(place) or _identity(repository / place) for place in places}
    return hashlib.sha256(json.dumps(sorted(identities)).encode()).hexdigest() if identities else ""


def _places(folders: set[str], locked: Mapping[str, str], repository: Path) -> Iterator[str]:
    """What the lock places in these folders, and what else lies in their versions: a model of one's own."""
    yield from (place for place in locked if folder_of(place) in folders)
    for folder in folders:
        for file in sorted((repository / folder).glob("[0-9]*/**/*")):
            if file.is_file() and _is_weights(file):
                yield file.relative_to(repository).as_posix()


def _is_weights(file: Path) -> bool:
    made_here = file.name == _SERVED and any(file.parent.glob(f"*{_COMPILED}*.plan"))
    compiled = _COMPILED in file.name or made_here
    return not (compiled or file.suffix in _NO_WEIGHTS or file.name.startswith("."))


def _locked(lock: WeightsLock, repository: Path) -> dict[str, str]:
    """What the file at each place is, or was made of; a build that reads no package is known by its file alone."""
    identities = {place: file.sha256 for _, file in lock.files() for place in file.place}
    for build in lock.builds:
        made_of = sorted(file.sha256 for file in lock.sources(build.name))
        for place in build.place:
            identities[place] = ":".join((build.name, *made_of)) if made_of else _identity(repository / place)
    return identities


def _identity(path: Path) -> str:
    """The file's content; of one of gigabytes its length, its beginning and its end."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if size <= _WHOLE:
                return hashlib.sha256(file.read()).hexdigest()
            digest = hashlib.sha256(f"{size}:".encode() + file.read(_ENDS))
            file.seek(-_ENDS, 2)
            digest.update(file.read())
            return digest.hexdigest()
    except OSError:  # a model without its file is not ready: nobody gets a vector of it
        return f"missing:{path.parent.parent.name}/{path.name}"
