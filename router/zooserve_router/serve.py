"""The router as a process of its own: a one-node Ray, Serve on its fast path, and the app behind HAProxy.

`python -m zooserve_router.serve FILE` reads its orders from a file, deploys, and takes it all down on SIGTERM or
SIGINT. It is a process apart from the supervisor because Ray ends its driver when a part of Ray dies, and because
Ray's settings are environment variables that it reads when it is imported.
"""

import json
import logging
import os
import secrets
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pydantic import BaseModel, ConfigDict

from zooserve.settings import Settings
from zooserve_router import haproxy
from zooserve_router.ray_node import start_ray

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = [
    "Orders",
    "RayPorts",
    "Replica",
    "deploy",
    "end_chats",
    "environment",
    "log_beside",
    "main",
    "printing_beside",
]

APP_NAME = "zooserve"
# Our admission refuses long before: Ray's own refusal is a plain-text 503.
_MAX_ONGOING_REQUESTS = 10_000
_DRAIN_S = 5.0
_TOLD_WITHIN_S = 5.0
_LAST_WORDS_S = 2.0
"""For answers that are ended to say so to their callers."""
_NAME = "router"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


class Orders(BaseModel):
    """What the supervisor tells the router process."""

    model_config = ConfigDict(frozen=True)

    settings: dict[str, Any]
    """Settings as JSON, ports and paths filled in."""
    sockets: Path
    """Ray's and HAProxy's private folder; short, see StateFolder.sockets."""
    metrics_folder: Path
    """prometheus_client's files. Given to the replicas alone: Ray's own processes would write theirs into it."""
    ray_metrics_port: int
    """Where Ray's agent shows Ray's own metrics."""
    ray_runs_file: Path
    """Made once Ray itself runs, before Serve and the app are started on it."""
    app: str = "zooserve_router.app:create_app"
    """module:function that makes the ASGI app from Settings."""


@dataclass(frozen=True)
class RayPorts:
    """Ports of Ray that have to differ between two platforms on one machine, or that somebody has to know."""

    haproxy_metrics: int
    haproxy_stats: int
    fallback_proxy: int
    ray_metrics: int
    exporter_host: str = "127.0.0.1"
    """Where HAProxy's metrics are shown."""


class Replica:
    """What Ray makes of the app in each replica: beside requests it takes the order to end what is left."""

    app: "FastAPI"

    async def end_chats(self) -> None:
        """End every chat that is still being written; its caller is told so."""
        services = getattr(self.app.state, "services", None)  # another app may have none
        if services is not None:
            services.chat.stop()


def environment(sockets: Path, ports: RayPorts, cores: int) -> dict[str, str]:
    """The variables that put Ray Serve on its fast path and close what they can close."""
    return {
        # Direct ingress behind HAProxy: 0.6 ms a request instead of 6.8 (measured, one connection).
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        # At Ray's own nice 15 replicas lose to everything else on a busy machine.
        "RAY_worker_niceness": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray listens on all interfaces whatever it is told: nobody without the token is heard.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        # Python processes start ten times slower beside busy neighbours; Ray would end them as stuck.
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "120",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "30",
        "RAY_SERVE_HAPROXY_STARTUP_TIMEOUT_S": "120",
        "RAY_agent_register_timeout_ms": "180000",
        "RAY_worker_register_timeout_seconds": "180",
        # Ray's controller otherwise wakes ten times a second and takes 4% of a core for it (measured, idle).
        "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
        # With Ray's own 30 s even an idle router takes that long to stop.
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0.1",
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "zooserve_router.steering.middlewares",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(haproxy.install(sockets / "bin", ports.exporter_host)),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(sockets / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(sockets / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(sockets / "metrics.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(sockets),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(sockets / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports.haproxy_metrics),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(ports.haproxy_stats),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(ports.fallback_proxy),
        "RAY_SERVE_HAPROXY_NBTHREAD": str(min(4, cores)),
        # Ray's per-request metrics cost a parsed log line per request; ours are counted by the app.
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
    }


def deploy(settings: Settings, metrics: Path, app: str) -> None:
    """Start Serve on the Ray of this process and wait until every replica of the router runs."""
    from ray import serve
    from ray.serve.schema import LoggingConfig

    quiet = LoggingConfig(enable_access_log=False, log_level="WARNING")
    serve.start(http_options={"host": settings.host, "port": settings.port}, logging_config=quiet)
    router = serve.deployment(
        name=_NAME,
        num_replicas=settings.router.replicas,
        max_ongoing_requests=_MAX_ONGOING_REQUESTS,
        graceful_shutdown_timeout_s=_DRAIN_S,
        graceful_shutdown_wait_loop_s=0.1,
        ray_actor_options={"num_cpus": 0, "runtime_env": {"env_vars": {"PROMETHEUS_MULTIPROC_DIR": str(metrics)}}},
    )(serve.ingress(_builder(settings, app))(Replica))
    serve.run(router.bind(), name=APP_NAME, route_prefix="/", logging_config=quiet)


def end_chats() -> None:
    """Have every replica end its chats. One that does not hear it is ended by Ray, and its streams break off."""
    from ray import serve

    try:
        handle = serve.get_deployment_handle(_NAME, APP_NAME)
        # On the fast path Ray would run it in the caller's event loop, and there is none here.
        handle._init(_run_router_in_separate_loop=True)
        handle.broadcast("end_chats").results(timeout_s=_TOLD_WITHIN_S)
    except Exception:  # whatever Ray raises of replicas that are gone or hang, the router stops
        _log.exception("not every replica could be told to end its chats")


def _builder(settings: Settings, app: str) -> Callable[[], "FastAPI"]:
    """What a replica calls to make its app. A plain function: Ray takes any other callable for the app itself."""
    values = settings.model_dump(mode="json")
    router = os.getpid()

    def build() -> "FastAPI":
        log_beside(router)
        module, _, function = app.partition(":")
        made: FastAPI = getattr(import_module(module), function)(printing_beside(router, Settings(**values)))
        return made

    return build


def printing_beside(process: int, settings: Settings) -> Settings:
    """The same settings, with that process's output as the place of an access log that goes to stdout."""
    log = settings.access_log.model_copy(update={"stdout": Path(f"/proc/{process}/fd/1")})
    return settings.model_copy(update={"access_log": log})


class _Formatter(logging.Formatter):
    """Tracebacks without `print`: in a replica that is Serve's, which writes each line into a file as a tuple."""

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # what another formatter made of it
        return super().format(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's
        return "".join(traceback.format_exception(*ei)).rstrip("\n")


def log_beside(process: int) -> None:
    """Log where that process does. Serve takes what a replica writes to stderr for INFO, and drops it."""
    try:
        stream: TextIO | None = Path(f"/proc/{process}/fd/2").open("a", encoding="utf-8")  # noqa: SIM115 - for as long as it lives
    except OSError:  # a socket, which nobody can open again; Ray's own file is left
        stream = sys.__stderr__
    handler = logging.StreamHandler(stream)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)


def leave_when_told(told: threading.Event) -> None:
    """Have SIGTERM and SIGINT raise SystemExit, once: whatever is under way then is taken down in order.

    In the place of Ray's handlers, which abort the process if that takes three seconds. `told` is set, since `ray.get`
    makes another SystemExit of it, with code 1.
    """

    def leave(number: int, frame: object) -> None:
        for each in _STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        told.set()
        raise SystemExit(0)

    for number in _STOP_SIGNALS:
        signal.signal(number, leave)


def main(orders_file: Path) -> None:
    """Deploy, stay until SIGTERM or SIGINT, drain, and take Ray down. Told to while it deploys, it ends with 0, too."""
    told = threading.Event()
    leave_when_told(told)
    orders = Orders.model_validate(json.loads(orders_file.read_text(encoding="utf-8")))
    settings = Settings(**orders.settings)
    import ray
    from ray import serve

    try:
        start_ray(orders.sockets / "r", orders.ray_metrics_port)
        leave_when_told(told)
        orders.ray_runs_file.touch()
        deploy(settings, orders.metrics_folder, orders.app)
        # Ray has threads of its own: the signals are blocked here, after it made them, and waited for.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        signal.sigwait(_STOP_SIGNALS)
        for admin_socket in orders.sockets.glob("*/admin.sock"):
            with suppress(OSError):  # HAProxy is gone: nothing is in flight
                if not haproxy.drain(admin_socket, settings.router.drain_s):
                    end_chats()
                    haproxy.drain(admin_socket, _LAST_WORDS_S)
    except SystemExit:
        if not told.is_set():
            raise
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
