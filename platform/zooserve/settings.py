"""Settings: one frozen tree, read once from the environment (prefix ZOOSERVE_). No other file reads it."""

import os
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

__all__ = [
    "SHORTEST_SALT",
    "AccessLogSettings",
    "EngineServerSettings",
    "RouterSettings",
    "Settings",
    "TraceLogSettings",
    "TracingSettings",
    "TritonSettings",
    "WatchSettings",
    "secret",
]

Port = Annotated[int, Field(ge=1, le=65535)]
SHORTEST_SALT = 16


class TritonSettings(BaseModel):
    """One Triton server. A port that is left out is chosen among the free ones at start."""

    model_config = ConfigDict(frozen=True)

    host: str = "127.0.0.1"
    http_port: Port | None = None
    grpc_port: Port | None = None
    metrics_port: Port | None = None
    start_timeout_s: float = 180.0
    """Loading and warming every bucket of every stage on two busy cores takes tens of seconds."""
    stop_timeout_s: float = 15.0
    """How long requests in flight may finish before the server is killed."""
    response_cache_bytes: Annotated[int, Field(ge=0)] = 0
    """Memory for answers to repeated requests (`response_cache` in a model's configuration); 0 keeps none."""


class EngineServerSettings(BaseModel):
    """The platform's own OpenAI server, started where an enabled model `runs_on: engine`."""

    model_config = ConfigDict(frozen=True)

    host: str = "127.0.0.1"
    port: Port | None = None
    """A free one is chosen at start; a router that runs alone asks the engine at this port."""
    key: str = Field(default="", repr=False)
    """What its callers must show. Made anew at each start of a platform."""
    gguf: Path = Path("leaf/tensorrt_llm/1/model.gguf")
    """The model; a relative path starts at the model repository."""
    slots: Annotated[int, Field(gt=0)] = 4
    """Requests that decode together."""
    context_per_slot: Annotated[int, Field(gt=0)] = 2048
    """Tokens of prompt and answer that one request may have."""
    batch_tokens: Annotated[int, Field(gt=0)] = 256
    """Prompt tokens per engine step: the smaller, the sooner a prefill notices that its caller has left."""
    threads: Annotated[int, Field(ge=0)] = 0
    """0: every core that the process may use."""
    cache_ram_mib: Annotated[int, Field(ge=0)] = 64
    """Host memory for prompts of slots that were taken over; llama.cpp's own default is 8 GiB."""
    start_timeout_s: float = 60.0
    stop_timeout_s: float = 5.0


class RouterSettings(BaseModel):
    """The HTTP edge and its bounds."""

    model_config = ConfigDict(frozen=True)

    replicas: Annotated[int, Field(gt=0)] = 1
    max_body_bytes: Annotated[int, Field(gt=0)] = 8 * 2**20
    """A body is refused as soon as it passes this many bytes, while it is still being read."""
    max_deadline_s: Annotated[float, Field(gt=0)] = 600.0
    """The longest total budget a request gets, whatever the client asks for."""
    interactive_tokens_in_flight: Annotated[int, Field(gt=0)] = 65_536
    """Zoo tokens of the interactive class that may be in flight in one replica."""
    bulk_tokens_in_flight: Annotated[int, Field(gt=0)] = 262_144
    """Zoo tokens of the bulk class that may be in flight in one replica."""
    zoo_requests_in_flight: Annotated[int, Field(gt=0)] = 960
    """Triton requests that may be in flight over all replicas, half of them of each class.

    An ensemble's first queue holds 1,024, and both classes wait in it where a model has no bulk twin.
    """
    chat_max_waiting: Annotated[int, Field(ge=0)] = 256
    """Chats that may wait for room in one model's budget, in one replica; the next is refused with a 429."""
    chat_silence_s: Annotated[float, Field(gt=0)] = 30.0
    """How long an answer that has begun may say nothing: Triton 2.51 may leave a killed stub's streams open."""
    drain_s: Annotated[float, Field(ge=0)] = 10.0
    """How long answers in flight may take once the router is told to stop; new connections are refused meanwhile."""
    haproxy_metrics_host: str = "127.0.0.1"
    """Where HAProxy shows its metrics: another address lets a Prometheus outside of this machine or container in."""
    haproxy_metrics_port: Port | None = None
    """A free one is chosen at start."""
    ray_metrics_port: Port | None = None
    """A free one is chosen at start. Ray shows its metrics on all interfaces, whatever it is told."""
    interactive_max_items: Annotated[int, Field(gt=0)] = 16
    """A request with more texts is bulk, unless the caller names the class itself."""


class TraceLogSettings(BaseModel):
    """The log of the last traces, kept by the supervisor.

    `zooserve trace` draws them, and the router learns there which stage of the zoo failed.
    """

    model_config = ConfigDict(frozen=True)

    enabled: bool = True
    """Off, Triton traces nothing, and a failure whose text names no stage says that it is not known."""
    host: str = "127.0.0.1"
    port: Port | None = None
    """A free one is chosen at start; a router that runs alone asks the log at this port, if one is given."""
    max_bytes: Annotated[int, Field(gt=0)] = 32 * 2**20
    """Of the part in memory. A request of three stages has about 5 kB."""
    disk_bytes: Annotated[int, Field(ge=2**20)] = 64 * 2**20
    """Of the part on the disk, where a request of three stages has about 2 kB: the least worthy are forgotten first."""

    @property
    def url(self) -> str:
        """Where it takes spans; empty while it has no port."""
        return "" if self.port is None else f"http://{self.host}:{self.port}/v1/traces"


def _empty_or_address(endpoint: str) -> str:
    if not endpoint:
        return endpoint
    address = urlsplit(endpoint)  # raises ValueError for a host or a port that is none
    if (
        address.scheme not in ("http", "https")
        or not address.hostname
        or address.port == 0
        or not endpoint.isprintable()
        or "?" in endpoint  # a path is added to it
        or "#" in endpoint
    ):
        raise ValueError("write the collector's address as http://host:4318")
    return endpoint


class TracingSettings(BaseModel):
    """Which requests are traced, and who gets the traces beside the trace log."""

    model_config = ConfigDict(frozen=True)

    sampling: Literal["tail", "head", "off"] = "tail"
    """`tail` traces every request and decides when it has ended: errors and slow ones are always kept. `head` decides
    when it begins, as its caller did or by `ratio`: cheaper, and what was not traced can name no failing stage."""
    ratio: Annotated[float, Field(ge=0, le=1)] = 0.1
    """`head`: the share of requests that are traced. `tail`: the share of ordinary ones that go on to `endpoint`."""
    slow_s: Annotated[float, Field(gt=0)] = 2.0
    """`tail`: a request that takes longer is slow; of a chat, until its first token."""
    endpoint: Annotated[str, AfterValidator(_empty_or_address)] = ""
    """An OTLP/HTTP collector's address, as http://host:4318; empty sends nothing anywhere."""
    content: bool = False
    """Whether spans may hold what callers sent: prompts, and error messages that quote them."""

    @property
    def url(self) -> str:
        """Where the collector takes traces; empty where there is none."""
        return f"{self.endpoint.rstrip('/').removesuffix('/v1/traces')}/v1/traces" if self.endpoint else ""


class AccessLogSettings(BaseModel):
    """The access log: one JSON object a line, one line a request that ended."""

    model_config = ConfigDict(frozen=True)

    enabled: bool = True
    to: Literal["folder", "stdout"] = "folder"
    """`stdout` is for containers: lines go where the router's process prints, for whoever collects that."""
    folder: Path | None = None
    """Where `access.jsonl` lies; left out, `logs` in the state folder."""
    max_bytes: Annotated[int, Field(ge=64 * 2**10)] = 64 * 2**20
    """Of `access.jsonl` and the three files before it together, whatever the number of replicas."""
    health: bool = False
    """Whether health checks and scrapes are logged as well."""
    stdout: Path = Path("/dev/stdout")
    """What `stdout` means; the router's process puts its own in here, since Ray keeps its replicas'."""


class WatchSettings(BaseModel):
    """How closely the supervisor looks at its servers."""

    model_config = ConfigDict(frozen=True)

    interval_s: Annotated[float, Field(gt=0)] = 5.0
    """Between two looks at a server. A model that answered somebody since the last look is not probed."""
    probe_timeout_s: Annotated[float, Field(gt=0)] = 15.0
    """A one-text probe that waits behind a full batch of bulk work takes about a second on two busy cores."""
    patience: Annotated[int, Field(gt=0)] = 3
    """Probes in a row that may pass their time before the server counts as hung."""
    backoff_s: Annotated[float, Field(gt=0)] = 1.0
    """The pause before a second remedy; it doubles with each further one."""
    longest_backoff_s: Annotated[float, Field(gt=0)] = 120.0


def _empty_or_long(salt: str) -> str:
    if salt and len(salt) < SHORTEST_SALT:
        raise ValueError(f"it must have {SHORTEST_SALT} characters or more: a short one could be guessed")
    return salt


class Settings(BaseSettings):
    """Everything that may differ between two machines."""

    model_config = SettingsConfigDict(env_prefix="ZOOSERVE_", env_nested_delimiter="__", frozen=True, extra="ignore")

    catalogue: Path = Path("zoo.yaml")
    models: str = "default"
    """Which of its models run: names with commas between, `default` (all that are not optional) or `all` among them."""
    repository: Path = Path("model_repository")
    """Holds the two Triton repositories, `zoo/` and `leaf/`."""
    weights_lock: Path = Path("weights.lock")
    cache_dir: Path = Path("~/.cache/zooserve")
    """Downloads and the Triton backend folder; safe to delete, costs a new download."""
    state_dir: Path = Path("~/.local/state/zooserve")
    """Logs, process records and metrics of one running platform. Two platforms need two of these."""
    host: str = "127.0.0.1"
    port: Port = 8000
    """Where the router answers."""
    zoo: TritonSettings = TritonSettings()
    leaf: TritonSettings = TritonSettings()
    engine: EngineServerSettings = EngineServerSettings()
    router: RouterSettings = RouterSettings()
    watch: WatchSettings = WatchSettings()
    trace_log: TraceLogSettings = TraceLogSettings()
    tracing: TracingSettings = TracingSettings()
    access_log: AccessLogSettings = AccessLogSettings()
    key_salt: Annotated[str, AfterValidator(_empty_or_long)] = Field(default="", repr=False)
    """What callers' keys are hashed with before logs and traces name them by `key_id`. Left out, the state folder keeps
    one of its own; routers whose logs are read together need the same."""
    key_salt_file: Path | None = None
    """A file that holds it, as container engines mount secrets; where `key_salt` is given, that one counts."""

    def resolved(self) -> "Settings":
        """The same settings with every path absolute, for handing to another process."""
        paths = {
            name: getattr(self, name).expanduser().resolve()
            for name in ("catalogue", "repository", "weights_lock", "cache_dir", "state_dir")
        }
        logs = self.access_log
        folder = logs.folder.expanduser().resolve() if logs.folder is not None else None
        return self.model_copy(update={**paths, "access_log": logs.model_copy(update={"folder": folder})})

    @property
    def zoo_repository(self) -> Path:
        """The Triton repository of the zoo."""
        return self.repository / "zoo"

    @property
    def leaf_repository(self) -> Path:
        """The Triton repository of the leaf."""
        return self.repository / "leaf"

    @property
    def access_log_file(self) -> Path:
        """The newest part of the access log, where it is kept in a folder."""
        return (self.access_log.folder or self.state_dir / "logs").expanduser() / "access.jsonl"


def secret(name: str) -> str | None:
    """The value of an environment variable that a catalogue entry names for a key; None where it is empty or not set.

    It is asked for once, when a client is made, and is never part of the settings: those are written into files.
    """
    return os.environ.get(name, "").strip() or None
