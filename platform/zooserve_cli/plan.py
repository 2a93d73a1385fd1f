"""What one platform will consist of: its settings with every port chosen, its servers, its probes."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from zooserve.catalogue import Catalogue, Model
from zooserve.engine.orders import EngineOrders
from zooserve.engine.server import EngineServer
from zooserve.processes.child import Child
from zooserve.processes.ports import require_free, reserved_ports
from zooserve.processes.shared_memory import prefix_of
from zooserve.processes.state import StateFolder
from zooserve.settings import EngineServerSettings, Settings, TraceLogSettings, TritonSettings
from zooserve.triton.installation import Installation
from zooserve.triton.reach import wanted_models
from zooserve.triton.server import Addresses, TritonServer
from zooserve.triton.tracing import trace_arguments
from zooserve.triton.watch import Probe, Watch, chat_probe, content_probe, text_probe
from zooserve_cli.router_process import RouterProcess, ray_ports

__all__ = ["Plan", "lone_triton", "make_plan", "own_backends", "reachable", "triton_with_ports", "with_ports"]

_PORTS = ("http_port", "grpc_port", "metrics_port")


@dataclass(frozen=True)
class Plan:
    """The servers of one platform, not started yet."""

    settings: Settings
    folder: StateFolder
    zoo: TritonServer
    leaf: TritonServer
    router: RouterProcess
    zoo_watch: Watch
    leaf_watch: Watch
    engine: EngineServer | None = None
    """None where no enabled model runs on it."""

    @property
    def router_address(self) -> str:
        """host:port at which this machine reaches the router."""
        return reachable(self.settings)


def reachable(settings: Settings) -> str:
    """host:port at which this machine reaches a router of these settings."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104 (compared)
    return f"[{host}]:{settings.port}" if ":" in host else f"{host}:{settings.port}"


def with_ports(settings: Settings) -> Settings:
    """The same settings with free ports filled in, and a key for the engine.

    Raises PortTaken for a fixed one that is not free.
    """
    require_free(settings.host, settings.port, "ZOOSERVE_PORT")
    taken = {settings.port, *_fixed(settings)}
    update: dict[str, object] = {}
    for name in ("zoo", "leaf"):
        update[name] = triton_with_ports(getattr(settings, name), name, taken)
    update["engine"] = _engine_with_port(settings.engine, taken)
    update["trace_log"] = _log_with_port(settings.trace_log, taken)
    return settings.model_copy(update=update)


def _fixed(settings: Settings) -> list[int]:
    """The ports that the settings name, the router's left out."""
    tritons = [getattr(triton, port) for triton in (settings.zoo, settings.leaf) for port in _PORTS]
    exporters = (settings.router.haproxy_metrics_port, settings.router.ray_metrics_port)
    named = (*tritons, *exporters, settings.engine.port, settings.trace_log.port)
    return [port for port in named if port is not None]


def _engine_with_port(engine: EngineServerSettings, taken: set[int]) -> EngineServerSettings:
    """The same with a key and a free port, which is added to `taken`."""
    if engine.port is not None:
        require_free(engine.host, engine.port, "ZOOSERVE_ENGINE__PORT")
    port = engine.port or reserved_ports(1, engine.host, but=taken)[0]
    taken.add(port)
    return engine.model_copy(update={"port": port, "key": engine.key or secrets.token_hex(16)})


def _log_with_port(log: TraceLogSettings, taken: set[int]) -> TraceLogSettings:
    if not log.enabled:
        return log.model_copy(update={"port": None})
    if log.port is None:
        return log.model_copy(update={"port": reserved_ports(1, log.host, but=taken)[0]})
    require_free(log.host, log.port, "ZOOSERVE_TRACE_LOG__PORT")
    return log


def triton_with_ports(triton: TritonSettings, name: str, taken: set[int]) -> TritonSettings:
    """The same with free ports filled in, which are added to `taken`. Raises PortTaken for a fixed one that is not."""
    left_out = [port for port in _PORTS if getattr(triton, port) is None]
    for port in _PORTS:
        if port not in left_out:
            require_free(triton.host, getattr(triton, port), f"ZOOSERVE_{name.upper()}__{port.upper()}")
    update = dict(zip(left_out, reserved_ports(len(left_out), triton.host, but=taken), strict=True))
    taken.update(update.values())
    return triton.model_copy(update=update)


def own_backends() -> Path:
    """Our Python-based Triton backends: beside the package in a checkout, inside it in a wheel."""
    package = Path(str(files("zooserve")))
    beside = package.parent / "triton-backends"
    return beside if beside.is_dir() else package / "_backends"


def make_plan(settings: Settings, catalogue: Catalogue, installation: Installation) -> Plan:
    """The servers for these settings, every port of which is set."""
    folder = StateFolder(settings.state_dir)
    traces = _trace_arguments(settings)
    zoo = _triton("zoo", settings.zoo, settings.zoo_repository, catalogue, folder, installation, traces)
    leaf = _triton("leaf", settings.leaf, settings.leaf_repository, catalogue, folder, installation)
    ports = ray_ports(settings, {settings.port, *_fixed(settings)})
    return Plan(
        settings=settings,
        folder=folder,
        zoo=zoo,
        leaf=leaf,
        router=RouterProcess(Child("router", folder.log_file("router")), settings, folder, ports),
        zoo_watch=Watch(zoo, _probes(catalogue, "zoo"), settings.watch),
        leaf_watch=Watch(leaf, _probes(catalogue, "leaf"), settings.watch),
        engine=_engine(settings, catalogue, folder),
    )


def lone_triton(
    name: Literal["zoo", "leaf"], settings: Settings, catalogue: Catalogue, installation: Installation
) -> tuple[TritonServer, Watch]:
    """One of the two Tritons by itself, which writes where this process does, and the looks at it."""
    folder = StateFolder(settings.state_dir)
    traces = _trace_arguments(settings) if name == "zoo" else ()
    triton: TritonSettings = getattr(settings, name)
    repository = settings.zoo_repository if name == "zoo" else settings.leaf_repository
    server = _triton(name, triton, repository, catalogue, folder, installation, traces, shares_output=True)
    return server, Watch(server, _probes(catalogue, name), settings.watch)


def _engine(settings: Settings, catalogue: Catalogue, folder: StateFolder) -> EngineServer | None:
    models = [model for model in catalogue if model.runs_on == "engine"]
    if not models:
        return None
    names = dict.fromkeys(model.chat_backend.model or model.name for model in models)
    orders = EngineOrders.of(settings.engine, settings.repository, names)
    return EngineServer(orders, folder.run / "engine.json", folder.log_file("engine"))


def _triton(
    name: str,
    triton: TritonSettings,
    repository: Path,
    catalogue: Catalogue,
    folder: StateFolder,
    installation: Installation,
    arguments: Sequence[str] = (),
    *,
    shares_output: bool = False,
) -> TritonServer:
    chosen = [getattr(triton, port) for port in _PORTS]
    return TritonServer(
        name,
        installation,
        repository,
        Addresses(triton.host, *chosen),
        folder.log_file(name),
        shm_prefix=prefix_of(folder.root),
        models=wanted_models(repository, catalogue),
        response_cache_bytes=triton.response_cache_bytes,
        arguments=arguments,
        shares_output=shares_output,
    )


def _trace_arguments(settings: Settings) -> tuple[str, ...]:
    """Triton's spans go where the router's go."""
    url = settings.trace_log.url or settings.tracing.url
    return trace_arguments(url) if url and settings.tracing.sampling != "off" else ()


def _probes(catalogue: Catalogue, runs_on: str) -> list[Probe]:
    # Leaves that the catalogue names are somebody else's to watch: the router leaves one out that is down.
    models = (model for model in catalogue if model.runs_on == runs_on and not (model.backend and model.backend.leaves))
    return [_probe(model, triton) for model in models for triton in _watched(model)]


def _watched(model: Model) -> list[str]:
    """Its Triton models that take what its callers send, and through them the stages that these call."""
    long_text = model.long_text.triton if model.long_text is not None else {}
    return list(dict.fromkeys((*model.triton.values(), *long_text.values())))


def _probe(model: Model, triton: str) -> Probe:
    if model.task == "chat":
        return chat_probe(triton)
    if model.modality != "text":
        return content_probe(triton, model.modality)
    # Row 0 of a rerank request is the query.
    return text_probe(triton, rows=2 if model.task == "rerank" else 1)
