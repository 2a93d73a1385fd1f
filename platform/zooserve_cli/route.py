"""`zooserve route`: the router alone, over Tritons that somebody else runs, a container's main process."""

import asyncio

import typer

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
    refuse_unaddressed(settings)
    if settings.tracing.url:
        collector_headers()  # the router reads them, too, and would pass over what it cannot read
    folder = StateFolder(settings.state_dir)
    with held(folder):
        require_free(settings.host, settings.port, "ZOOSERVE_PORT")
        clear(folder)
        code = asyncio.run(LoneRouter(with_key_salt(settings, folder), folder).run())
    raise typer.Exit(code)


def refuse_unaddressed(settings: Settings) -> None:
    """Raises SetupError naming the settings that say where the Tritons are, where they do not."""
    missing = [
        name
        for name, port in (
            ("ZOOSERVE_ZOO__HTTP_PORT", settings.zoo.http_port),
            ("ZOOSERVE_LEAF__GRPC_PORT", settings.leaf.grpc_port),
        )
        if port is None
    ]
    if missing:
        raise SetupError(
            f"The router alone needs to know where its Tritons are: set {' and '.join(missing)} "
            "(and ZOOSERVE_ZOO__HOST, ZOOSERVE_LEAF__HOST), or run `zooserve up` for everything."
        )
