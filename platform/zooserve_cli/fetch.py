"""`zooserve fetch`: the weights of weights.lock, placed into the model repository."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from zooserve.catalogue import Catalogue, load_catalogue
from zooserve.settings import Settings
from zooserve.triton.reach import unwanted_models
from zooserve.weights.fetching import Fetched, Fetching
from zooserve.weights.lock import folder_of, load_lock
from zooserve.weights.sources import Progress, Silent
from zooserve_cli.progress import progress_for
from zooserve_ensembles.recipes import RECIPES, fingerprint

__all__ = ["MODELS_HELP", "fetch", "fetch_weights", "unwanted_folders", "with_models"]

MODELS_HELP = "Models to enable: names with commas, `default` or `all` among them. Else ZOOSERVE_MODELS."


def with_models(settings: Settings, models: str | None) -> Settings:
    """The settings with the models that a command line asks for, if it does."""
    return settings if models is None else settings.model_copy(update={"models": models})


def unwanted_folders(settings: Settings) -> frozenset[str]:
    """The folders of the model repository that no enabled model needs. Raises CatalogueError."""
    catalogue = load_catalogue(settings.catalogue).enabling(settings.models)
    repositories = {"zoo": settings.zoo_repository, "leaf": settings.leaf_repository}
    unreached = {
        f"{name}/{model}"
        for name, repository in repositories.items()
        for model in unwanted_models(repository, catalogue)
    }
    return frozenset(unreached - _folders_read(settings, catalogue))


def _folders_read(settings: Settings, catalogue: Catalogue) -> set[str]:
    """Folders whose files are read by others than Triton: the router's tokenizers, the engine's model."""
    files = [Path(model.tokenizer) for model in catalogue if model.tokenizer is not None]
    if any(model.runs_on == "engine" for model in catalogue):
        files.append(settings.engine.gguf)
    return {folder_of(file.as_posix()) for file in files if not file.is_absolute()}


def fetch_weights(settings: Settings, *, verify: bool = False, progress: Progress | None = None) -> Fetched:
    """Place every weight that the lock names for the enabled models and that is not in place yet.

    Raises CatalogueError, WrongHash, DownloadFailed, DiskFull or MissingPart; what was done until then stays and is not
    done again.
    """
    settings = settings.resolved()
    return Fetching(
        lock=load_lock(settings.weights_lock),
        repository=settings.repository,
        cache=settings.cache_dir,
        recipes=RECIPES,
        recipes_fingerprint=fingerprint(),
        progress=progress or Silent(),
        unwanted=unwanted_folders(settings),
    ).run(verify=verify)


def fetch(
    verify: Annotated[bool, typer.Option("--verify", help="Hash every placed file again.")] = False,
    models: Annotated[str | None, typer.Option("--models", help=MODELS_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what is placed as JSON.")] = False,
) -> None:
    """Get the pinned weights, check their hashes, build what must be built, place them in the model repository."""
    started = time.perf_counter()
    with progress_for(sys.stderr if as_json else sys.stdout) as progress:
        fetched = fetch_weights(with_models(Settings(), models), verify=verify, progress=progress)
    if as_json:
        typer.echo(json.dumps({"files": dict(fetched.files), "written": list(fetched.written)}, indent=1))
        return
    took = time.perf_counter() - started
    typer.echo(f"{len(fetched.files)} weight files in place, {len(fetched.written)} of them new ({took:.1f} s).")
