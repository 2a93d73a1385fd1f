"""The router's process: Ray, Serve and the app, started with its orders in a file."""

import os
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from zooserve.processes.child import Child
from zooserve.processes.files import write_atomically
from zooserve.processes.ports import require_free, reserved_ports
from zooserve.processes.records import Record
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings
from zooserve_cli.leftovers import make_private
from zooserve_router.serve import Orders, RayPorts, environment

__all__ = ["RouterProcess", "ray_ports"]

_PARTS = ("raylet", "gcs_server", "haproxy")


def ray_ports(settings: Settings, taken: Collection[int] = ()) -> RayPorts:
    """Ports that are free, none of `taken`. Raises PortTaken for one that the settings name and somebody else has."""
    router = settings.router
    named = {"haproxy_metrics": router.haproxy_metrics_port, "ray_metrics": router.ray_metrics_port}
    fixed = {name: port for name, port in named.items() if port is not None}
    for name, port in fixed.items():
        require_free(router.haproxy_metrics_host, port, f"ZOOSERVE_ROUTER__{name.upper()}_PORT")
    names = [field.name for field in fields(RayPorts) if field.type in (int, "int") and field.name not in fixed]
    free = dict(zip(names, reserved_ports(len(names), but={*taken, *fixed.values()}), strict=True))
    return RayPorts(**fixed, **free, exporter_host=router.haproxy_metrics_host)


@dataclass(frozen=True)
class RouterProcess:
    """`python -m zooserve_router.serve` over one state folder."""

    child: Child
    settings: Settings
    folder: StateFolder
    ports: RayPorts

    @property
    def runs_ray(self) -> bool:
        """Whether Ray itself has started, in the process that runs now."""
        return self._ray_runs_file.exists()

    def missing_parts(self, stock: Iterable[Record]) -> list[str]:
        """Which of the parts that a running router cannot be without are not in `stock`.

        Replicas go on serving for minutes without a raylet, so answers alone do not tell (measured: five minutes).
        """
        programs = {Path(record.command.partition(" ")[0]).name for record in stock if record.role == "router child"}
        return [part for part in _PARTS if part not in programs]

    @property
    def _ray_runs_file(self) -> Path:
        return self.folder.run / "ray"

    def start(self) -> None:
        """Start it; it deploys while this returns."""
        self.child.start(*self.command())

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Its command line and environment, its orders and folders made anew."""
        self._ray_runs_file.unlink(missing_ok=True)
        sockets = self.folder.sockets
        make_private(sockets)
        orders = Orders(
            settings=self.settings.model_dump(mode="json"),
            sockets=sockets,
            metrics_folder=self.folder.metrics,
            ray_metrics_port=self.ports.ray_metrics,
            ray_runs_file=self._ray_runs_file,
        )
        file = self.folder.run / "router.json"
        write_atomically(file, orders.model_dump_json(indent=1))  # for its owner alone: keys and a salt are in it
        inherited = {name: value for name, value in os.environ.items() if name != "PROMETHEUS_MULTIPROC_DIR"}
        added = environment(sockets, self.ports, os.cpu_count() or 1)
        return [sys.executable, "-m", "zooserve_router.serve", str(file)], {**inherited, **added}
