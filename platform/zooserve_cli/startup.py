"""From settings to a supervisor that may start: checks, ports, weights, servers. The composition root of `up`."""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from zooserve.catalogue import load_catalogue
from zooserve.errors import MissingPart
from zooserve.processes.files import write_atomically
from zooserve.processes.shared_memory import prefix_of
from zooserve.processes.state import PlatformState, StateFolder, Step, unplanned
from zooserve.settings import Settings
from zooserve.triton.installation import find_installation
from zooserve.weights.sources import Progress
from zooserve_cli.bounds import stop_s
from zooserve_cli.checks import faults_before_start
from zooserve_cli.fetch import fetch_weights
from zooserve_cli.key_salt import with_key_salt
from zooserve_cli.plan import Plan, make_plan, own_backends, with_ports
from zooserve_cli.repository_check import repository_warnings
from zooserve_observability.scraping import rules_folder, scrape_file

if TYPE_CHECKING:
    from zooserve_cli.supervisor import Supervisor
    from zooserve_observability.supervision import SupervisorMetrics

__all__ = ["prepare"]


def prepare(
    settings: Settings, folder: StateFolder, progress: Progress, changed: Callable[[PlatformState], None]
) -> "Supervisor":
    """Everything that comes before the first server. Raises a SetupError that says how to mend what is missing."""
    began = time.monotonic()
    settings = with_key_salt(with_ports(settings), folder)
    catalogue = load_catalogue(settings.catalogue).enabling(settings.models)
    if faults := faults_before_start(settings):
        raise MissingPart("\n".join(f"{fault.name}: {fault.found}. {fault.mend}" for fault in faults))
    installation = find_installation(settings.cache_dir, own_backends())
    plan = make_plan(settings, catalogue, installation)
    checked = Step(name="checks", seconds=time.monotonic() - began)
    state = _first_state(plan, checked)
    _write_scrape_file(folder, state)
    folder.write_state(state)
    began = time.monotonic()
    fetch_weights(settings, progress=progress)
    fetched = Step(name="weights in place", seconds=time.monotonic() - began)
    state = state.model_copy(update={"steps": (checked, fetched), "warnings": repository_warnings(settings)})
    metrics = _metrics(folder)
    from zooserve_cli.supervisor import Supervisor

    return Supervisor(plan, catalogue, state, metrics, changed)


def _first_state(plan: Plan, *steps: Step) -> PlatformState:
    zoo, leaf = plan.zoo.addresses, plan.leaf.addresses
    addresses = {
        "router": plan.router_address,
        "zoo_http": zoo.http,
        "zoo_grpc": zoo.grpc,
        "zoo_metrics": zoo.metrics,
        "leaf_http": leaf.http,
        "leaf_grpc": leaf.grpc,
        "leaf_metrics": leaf.metrics,
        "engine_http": plan.engine.address if plan.engine is not None else "",
        "haproxy_metrics": f"127.0.0.1:{plan.router.ports.haproxy_metrics}",
        "ray_metrics": f"127.0.0.1:{plan.router.ports.ray_metrics}",
    }
    return unplanned("starting").model_copy(
        update={
            **addresses,
            "shm_prefix": prefix_of(plan.folder.root),
            "scrape_file": str(plan.folder.scrape_file),
            "steps": steps,
            "stop_s": stop_s(plan.settings),
        }
    )


def _write_scrape_file(folder: StateFolder, state: PlatformState) -> None:
    """Where everything is scraped, for whoever starts a Prometheus."""
    rules = rules_folder()
    addresses = {
        "router": state.router,
        "zoo": state.zoo_metrics,
        "leaf": state.leaf_metrics,
        "haproxy": state.haproxy_metrics,
        "ray": state.ray_metrics,
    }
    write_atomically(folder.scrape_file, scrape_file(addresses, rules if rules.is_dir() else None))


def _metrics(folder: StateFolder) -> "SupervisorMetrics":
    """The supervisor's counters, in the folder that the router's /metrics reads.

    prometheus_client looks for the folder when it is imported, so nothing may have imported it before.
    """
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder.metrics)
    from prometheus_client import CollectorRegistry

    from zooserve_observability.supervision import SupervisorMetrics

    return SupervisorMetrics(CollectorRegistry())
