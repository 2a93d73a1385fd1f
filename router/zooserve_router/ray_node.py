"""A one-node Ray that comes up on a busy machine too, with no more processes than it needs.

Ray 2.60's raylet gives its Python agent 15 s to write down which ports it chose, and dies of it otherwise; ray.init
gives the raylet 30 s. Neither is a setting, and beside 14 busy neighbours on two cores both are too short (measured:
2 starts of 3 failed). So the ports are chosen and written down beforehand; ray.init hands none of them on, hence the
replaced names.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from zooserve.processes.ports import free_ports

__all__ = ["start_ray"]

_START_S = 180.0
_POLL_S = 0.5
_OBJECT_STORE_BYTES = 80 * 2**20
"""The least that Ray takes: nothing of size goes through a router's object store."""
# RayParams' fields for what is not told to ray.init.
_PORTS = ("metrics_agent_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
_METRICS_PORT = "metrics_export_port"


def start_ray(
    folder: Path, metrics_port: int, *, cores: int = 1, object_store_bytes: int = _OBJECT_STORE_BYTES
) -> None:
    """Start a Ray that this process owns; `folder` holds its sessions and sockets, its metrics are at that port.

    `cores` is how many tasks of one core it runs together, whatever the machine has.
    """
    import ray

    ports = {**dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True)), _METRICS_PORT: metrics_port}
    with _patience(folder, ports):
        ray.init(
            address="local",
            _node_ip_address="127.0.0.1",
            _temp_dir=str(folder),
            _metrics_export_port=metrics_port,
            include_dashboard=False,
            object_store_memory=object_store_bytes,
            num_cpus=cores,
            num_gpus=0,
            log_to_driver=False,
        )


@contextmanager
def _patience(folder: Path, ports: dict[str, int]) -> Iterator[None]:
    """For the block, Ray's nodes get these ports and no autoscaler, and have `_START_S` to come up."""
    from ray._private import parameter, services

    parameters, get_node = parameter.RayParams, services.get_node
    chosen = {name: port for name, port in ports.items() if name != _METRICS_PORT}
    parameter.RayParams = partial(parameters, **chosen, no_monitor=True, include_log_monitor=False)
    services.get_node = partial(_get_node, get_node, folder / "session_latest", ports)
    try:
        yield
    finally:
        parameter.RayParams, services.get_node = parameters, get_node


def _get_node(get_node: Any, session: Path, ports: dict[str, int], address: str, node_id: str) -> Any:
    """Called right after the raylet was started: write down the ports, ask until the node is there.

    The last RuntimeError once the time is over.
    """
    for name, port in ports.items():
        (session / f"{name}_{node_id}").write_text(str(port))
    deadline = time.monotonic() + _START_S
    while True:
        try:
            return get_node(address, node_id)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)
