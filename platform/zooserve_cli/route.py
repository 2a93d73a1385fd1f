"""`zooserve route`: the router alone, over Tritons that somebody else runs, a container's main process."""

import os

from zooserve.errors import SetupError
from zooserve.processes.child import Child
from zooserve.processes.ports import free_ports, require_free
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

__all__ = ["route"]


def route() -> None:
    """Run the router alone, over the Tritons that ZOOSERVE_ZOO__* and ZOOSERVE_LEAF__* name."""
    from zooserve_cli.leftovers import clear, held
    from zooserve_cli.router_process import RouterProcess
    from zooserve_router.serve import RayPorts

    settings = Settings().resolved()
    refuse_unaddressed(settings)
    folder = StateFolder(settings.state_dir)
    with held(folder):
        require_free(settings.host, settings.port, "ZOOSERVE_PORT")
        clear(folder)
        child = Child("router", folder.log_file("router"))
        command, environment = RouterProcess(child, settings, folder, RayPorts(*free_ports(3))).command()
    os.execve(command[0], command, environment)  # noqa: S606 (this process becomes the router, no shell)


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
