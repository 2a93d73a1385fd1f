"""`zooserve triton`: one embedded Triton alone, a container's main process."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from zooserve.catalogue import load_catalogue
from zooserve.errors import MissingPart
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

__all__ = ["triton"]


def triton(role: Annotated[Literal["zoo", "leaf"], typer.Argument(help="Which of the two.")]) -> None:
    """Run the zoo's or the leaf's Triton alone, where ZOOSERVE_ZOO__* or ZOOSERVE_LEAF__* say that it listens."""
    from zooserve.triton.installation import find_installation
    from zooserve_cli.leftovers import clear, held
    from zooserve_cli.lone_triton import LoneTriton
    from zooserve_cli.plan import lone_triton, own_backends, triton_with_ports

    settings = Settings().resolved()
    folder = StateFolder(settings.state_dir)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells every probe
    with held(folder):
        clear(folder)  # what a killed one left may still have the ports
        _require_repository(settings.zoo_repository if role == "zoo" else settings.leaf_repository)
        own = triton_with_ports(getattr(settings, role), role, set())
        settings = settings.model_copy(update={role: own})
        catalogue = load_catalogue(settings.catalogue).enabling(settings.models)
        installation = find_installation(settings.cache_dir, own_backends())
        server, watch = lone_triton(role, settings, catalogue, installation)
        if not watch.models:
            logging.getLogger("zooserve.triton").warning("%s: no enabled model runs on it (ZOOSERVE_MODELS)", role)
        asyncio.run(LoneTriton(server, watch, own, settings.watch, folder).run())


def _require_repository(folder: Path) -> None:
    """Triton itself would start all the same, and serve nothing."""
    if not folder.is_dir():
        raise MissingPart(f"{folder} is no folder: mount the model repository there, or set ZOOSERVE_REPOSITORY.")
