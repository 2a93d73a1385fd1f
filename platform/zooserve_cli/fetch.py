"""`zooserve fetch`: the weights of weights.lock, placed into the model repository."""

import json
import sys
import time
from typing import Annotated

import typer

from zooserve.settings import Settings
from zooserve.weights.fetching import Fetched, Fetching
from zooserve.weights.lock import load_lock
from zooserve.weights.sources import Progress, Silent
from zooserve_cli.progress import progress_for
from zooserve_ensembles.recipes import RECIPES, fingerprint

__all__ = ["fetch", "fetch_weights"]


def fetch_weights(settings: Settings, *, verify: bool = False, progress: Progress | None = None) -> Fetched:
    """Place every weight that the lock names and that is not in place yet.

    Raises WrongHash, DownloadFailed, DiskFull or MissingPart; what was done until then stays and is not done again.
    """
    settings = settings.resolved()
    return Fetching(
        lock=load_lock(settings.weights_lock),
        repository=settings.repository,
        cache=settings.cache_dir,
        recipes=RECIPES,
        recipes_fingerprint=fingerprint(),
        progress=progress or Silent(),
    ).run(verify=verify)


def fetch(
    verify: Annotated[bool, typer.Option("--verify", help="Hash every placed file again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what is placed as JSON.")] = False,
) -> None:
    """Get the pinned weights, check their hashes, build what must be built, place them in the model repository."""
    started = time.perf_counter()
    with progress_for(sys.stderr if as_json else sys.stdout) as progress:
        fetched = fetch_weights(Settings(), verify=verify, progress=progress)
    if as_json:
        typer.echo(json.dumps({"files": dict(fetched.files), "written": list(fetched.written)}, indent=1))
        return
    took = time.perf_counter() - started
    typer.echo(f"{len(fetched.files)} weight files in place, {len(fetched.written)} of them new ({took:.1f} s).")
