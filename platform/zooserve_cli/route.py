"""`zooserve route`: the router alone, over Tritons that somebody else runs, a container's main process."""

import asyncio

import typer

from zooserve.catalogue import Catalogue, Model, load_catalogue
from zooserve.errors import SetupError
from zooserve.processes.ports import require_free
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

__all__ = ["route"]


def route() -> None:
    """Run the router alone, over the Tritons that ZOOSERVE_ZOO__* and ZOOSERVE_LEAF__* name."""
    from zooserve_cli.key_salt import with_key_salt
    from zooserve_cli.leftovers import clear, held
    from zooserve_cli.lone_router import LoneRouter
    from zooserve_cli.trace_keeping import collector_headers

    settings = Settings().resolved()
    refuse_unaddressed(settings, load_catalogue(settings.catalogue).enabling(settings.models))
    if settings.tracing.url:
        collector_headers()  # the router reads them, too, and would pass over what it cannot read
    folder = StateFolder(settings.state_dir)
    with held(folder):
        clear(folder)  # what a killed one left may still have the port
        require_free(settings.host, settings.port, "ZOOSERVE_PORT")
        code = asyncio.run(LoneRouter(with_key_salt(settings, folder), folder).run())
    raise typer.Exit(code)


def refuse_unaddressed(settings: Settings, catalogue: Catalogue) -> None:
    """Raises SetupError naming the settings that leave out where a Triton is that a model runs on."""
    needed = {
        "ZOO": (settings.zoo.http_port, "HTTP_PORT", any(model.runs_on == "zoo" for model in catalogue)),
        # A model that names its leaves, and one that somebody else's server answers, needs none of ours.
        "LEAF": (settings.leaf.grpc_port, "GRPC_PORT", any(_on_own_leaf(model) for model in catalogue)),
    }
    missing = {name: setting for name, (port, setting, used) in needed.items() if used and port is None}
    if missing:
        ports = " and ".join(f"ZOOSERVE_{name}__{setting}" for name, setting in missing.items())
        hosts = ", ".join(f"ZOOSERVE_{name}__HOST" for name in missing)
        raise SetupError(
            f"The router alone needs to know where its Tritons are: set {ports} (and {hosts}), "
            "or run `zooserve up` for everything."
        )


def _on_own_leaf(model: Model) -> bool:
    return model.runs_on == "leaf" and not model.chat_backend.leaves
