"""The metric vocabulary: every series that zooserve's own processes export, named, explained and bounded once.

The recorders (`metrics` and its neighbours) make their series from it, the dashboards and the rules write their
expressions with it. What others export beside it (Triton's nv_*, Ray, HAProxy) is `foreign`.

Units are Prometheus' base units and stand in the name. Every label is bounded by the catalogue, by the settings, or by
a list in the code: a name that a client made up is counted under `unknown`.
"""

from dataclasses import dataclass
from typing import Literal, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["METRICS", "Metric"]

Kind = Literal["counter", "gauge", "histogram"]
OverReplicas = Literal["livesum", "livemax", "livemin", "max", "mostrecent"]
"""How one gauge is made of those of all processes that share the multiprocess folder."""
T = TypeVar("T")


@dataclass(frozen=True)
class Metric:
    """One family of series."""

    name: str
    """Without the `_total` that a counter's series ends in."""
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    """What is counted or measured; seconds and bytes stand in the name, too."""
    buckets: tuple[float, ...] = ()
    """Of a histogram: upper bounds, in its unit."""
    over_replicas: OverReplicas = "livesum"
    """Of a gauge."""

    @property
    def series(self) -> str:
        """The name as a query writes it; a histogram's without `_bucket`, `_sum` or `_count`."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def counter(self, registry: CollectorRegistry) -> Counter:
        """This counter, in that registry."""
        self._must_be("counter")
        return Counter(self.name, self.help, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """This gauge, in that registry."""
        self._must_be("gauge")
        return Gauge(self.name, self.help, self.labels, registry=registry, multiprocess_mode=self.over_replicas)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """This histogram, in that registry."""
        self._must_be("histogram")
        return Histogram(self.name, self.help, self.labels, registry=registry, buckets=self.buckets)

    def _must_be(self, kind: Kind) -> None:
        if self.kind != kind:
            raise TypeError(f"{self.name} is a {self.kind}, no {kind}")


_RUN = ("model", "version", "class")
"""What ran: the catalogue's name, its version, and the SLO class; shared with whoever calls."""
_DURATION_S = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_DELAY_S = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048)
# Those of OpenTelemetry's gen_ai.server.time_per_output_token.
_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

# Requests

REQUESTS = Metric(
    "zooserve_requests",
    "counter",
    "Requests that ended; outcome is ok, cancelled, or the error's name.",
    (*_RUN, "outcome"),
    "requests",
)
REQUEST_DURATION = Metric(
    "zooserve_request_duration_seconds",
    "histogram",
    "From the request's first byte to the answer's last, by model and class.",
    _RUN,
    "seconds",
    _DURATION_S,
)
IN_FLIGHT = Metric(
    "zooserve_requests_in_flight", "gauge", "Requests being worked on, the scrape itself among them.", unit="requests"
)
TOKENS = Metric(
    "zooserve_tokens",
    "counter",
    "Tokens read (direction input) and written (direction output).",
    (*_RUN, "direction"),
    "tokens",
)
REFUSED = Metric(
    "zooserve_refused",
    "counter",
    "Requests refused with a 4xx, by the error's code.",
    ("reason",),
    "requests",
)
ADMISSION_REFUSED = Metric(
    "zooserve_admission_refused",
    "counter",
    "Requests that a known model did not get because there was no room for them; reason is tokens, requests, queue "
    "(too many wait), deadline (it passed while waiting), breaker or not_ready.",
    ("model", "class", "reason"),
    "requests",
)
ADMISSION_WAIT = Metric(
    "zooserve_admission_wait_seconds",
    "histogram",
    "How long an admitted request waited in the router for room in its model's budget.",
    _RUN,
    "seconds",
    _DURATION_S,
)
STAGE_FAILURES = Metric(
    "zooserve_stage_failures",
    "counter",
    "Requests to the zoo that a stage failed or refused; stage is `unknown` where nothing told which.",
    ("model", "stage", "version", "reason"),
    "requests",
)
SPACE_MISMATCHES = Metric(
    "zooserve_embedding_space_mismatches",
    "counter",
    "Requests that named another embedding space than the model's, and were refused.",
    ("model", "version"),
    "requests",
)

# What is served

MODEL_INFO = Metric(
    "zooserve_model_info",
    "gauge",
    "1 for every model that is served; weights is the beginning of the digest of what was fetched for it.",
    ("model", "version", "task", "runs_on", "weights"),
    over_replicas="livemax",
)
MODEL_READY = Metric(
    "zooserve_model_ready",
    "gauge",
    "Whether the router finds the model ready: 1, or 0 where any replica does not.",
    ("model", "version"),
    over_replicas="livemin",
)
RELEASE_SHARE = Metric(
    "zooserve_release_share",
    "gauge",
    "The share of a model's requests that a release is to get, 0 while it is not enabled or not ready; role is "
    "serving, canary or shadow.",
    ("model", "release", "version", "role"),
    over_replicas="livemax",
)
RELEASE_REQUESTS = Metric(
    "zooserve_release_requests",
    "counter",
    "Requests to a model with several releases, by the release that ran them; a shadow's answers go to nobody, "
    "and those that it was not given are `skipped`.",
    ("model", "release", "version", "role", "outcome"),
    "requests",
)
RELEASE_DURATION = Metric(
    "zooserve_release_duration_seconds",
    "histogram",
    "How long a release took for such a request.",
    ("model", "release", "version", "role"),
    "seconds",
    _DURATION_S,
)

# Ways to the backends

RETRIES = Metric(
    "zooserve_retries",
    "counter",
    "Second tries after nothing had been sent to the caller; outcome is ok, failed, or denied (no budget was left).",
    ("endpoint", "outcome"),
    "tries",
)
BREAKER_STATE = Metric(
    "zooserve_breaker_state",
    "gauge",
    "An endpoint's circuit breaker: 0 closed, 1 half open, 2 open; the worst of all replicas.",
    ("endpoint",),
    over_replicas="livemax",
)
BREAKER_OPENED = Metric(
    "zooserve_breaker_opened", "counter", "Times that a circuit breaker opened.", ("endpoint",), "times"
)
LEAF_IN_FLIGHT = Metric(
    "zooserve_leaf_requests_in_flight",
    "gauge",
    "Generations in flight on each of a model's leaves, where it has several.",
    ("model", "leaf"),
    "requests",
)
LEAF_LEFT_OUT = Metric(
    "zooserve_leaf_left_out",
    "counter",
    "Times that a leaf was found down, and left out for a while.",
    ("model", "leaf"),
    "times",
)

# Chat

FIRST_TOKEN = Metric(
    "zooserve_time_to_first_token_seconds",
    "histogram",
    "From the request's first byte to its first generated token, however the answer ended.",
    _RUN,
    "seconds",
    _DURATION_S,
)
OUTPUT_TOKEN = Metric(
    "zooserve_time_per_output_token_seconds",
    "histogram",
    "From an answer's first token to its last, divided by the tokens after the first, as the router sees it.",
    _RUN,
    "seconds",
    _TOKEN_S,
)
ENGINE_PHASE = Metric(
    "zooserve_engine_phase_seconds",
    "histogram",
    "Where the engine says that an answer's time went: queue, prefill or decode.",
    (*_RUN, "phase"),
    "seconds",
    _DURATION_S,
)
DELIVERY_DELAY = Metric(
    "zooserve_delivery_delay_seconds",
    "histogram",
    "What an answer took as the router saw it, less what the engine says: the ways there and back.",
    _RUN,
    "seconds",
    _DELAY_S,
)
CHOICES_ISSUED = Metric(
    "zooserve_chat_choices_issued",
    "counter",
    "Choices that were admitted and asked for; as many have ended once nothing is in flight.",
    _RUN,
    "choices",
)
CHOICES_ENDED = Metric(
    "zooserve_chat_choices_ended",
    "counter",
    "Choices that ended; outcome is finished, cancelled (the caller left, the deadline passed, the router stopped) or "
    "failed.",
    (*_RUN, "outcome"),
    "choices",
)
WASTED_TOKENS = Metric(
    "zooserve_wasted_tokens",
    "counter",
    "Tokens generated for nobody; reason is hang_up, deadline, shutdown or error where an answer did not get to its "
    "end, stop where the engine wrote past a stop string.",
    (*_RUN, "reason"),
    "tokens",
)
CHAT_WAITING = Metric(
    "zooserve_chat_waiting", "gauge", "Chats that wait for room in their model's budget.", ("model",), "requests"
)
CHAT_HELD_TOKENS = Metric(
    "zooserve_chat_held_tokens",
    "gauge",
    "Tokens of a model's budget that are taken: prompts and everything granted.",
    ("model",),
    "tokens",
)
CHAT_BUDGET_TOKENS = Metric(
    "zooserve_chat_budget_tokens",
    "gauge",
    "Tokens of prompts and granted answers that may be in flight, over all replicas.",
    ("model",),
    "tokens",
)
LEAF_KV_BLOCKS = Metric(
    "zooserve_leaf_kv_blocks",
    "counter",
    "Blocks of prompts whose KV the leaf had (state reused) and had not (state missed).",
    (*_RUN, "state"),
    "blocks",
)
DRAFT_TOKENS = Metric(
    "zooserve_draft_tokens",
    "counter",
    "Tokens that speculative decoding proposed; state says whether they were accepted or rejected.",
    (*_RUN, "state"),
    "tokens",
)
DRAFT_ACCEPTANCE = Metric(
    "zooserve_draft_acceptance_rate",
    "histogram",
    "The acceptance rate that the engine reports of an answer decoded with draft tokens.",
    _RUN,
    "ratio",
    _SHARES,
)

# The supervisor

SERVER_RESTARTS = Metric(
    "zooserve_server_restarts",
    "counter",
    "Servers that the supervisor started again because they had ended or hung.",
    ("server",),
    "times",
)
MODEL_RELOADS = Metric(
    "zooserve_model_reloads",
    "counter",
    "Triton models that the supervisor loaded again because their stub was sick.",
    ("server", "triton_model"),
    "times",
)
PROBE_FAILURES = Metric(
    "zooserve_probe_failures",
    "counter",
    "Real inferences by which the supervisor looks at a model, and that failed or were not answered in time.",
    ("server", "triton_model"),
    "times",
)
WARMUP_FAILURES = Metric(
    "zooserve_warmup_failures",
    "counter",
    "Buckets that a stage could not run when it was warmed up.",
    ("triton_model", "version"),
    "times",
)

# Traces

SPANS_EXPORTED = Metric(
    "zooserve_spans_exported",
    "counter",
    "Spans that whoever takes them has taken; exporter is router, log (on its way to the disk) or forward (to the "
    "collector).",
    ("exporter",),
    "spans",
)
SPANS_DROPPED = Metric(
    "zooserve_spans_dropped",
    "counter",
    "Spans that were lost on their way; reason is queue_full, failed (refused, or nobody answered) or disk.",
    ("exporter", "reason"),
    "spans",
)
TRACES_DECIDED = Metric(
    "zooserve_traces_decided",
    "counter",
    "Whole traces by what the trace log made of them; decision is error, slow, sampled or left_out.",
    ("decision",),
    "traces",
)
TRACE_LOG_BYTES = Metric(
    "zooserve_trace_log_bytes",
    "gauge",
    "What the trace log takes; place is memory or disk.",
    ("place",),
    "bytes",
    over_replicas="mostrecent",
)
TRACE_LOG_MAX_BYTES = Metric(
    "zooserve_trace_log_max_bytes",
    "gauge",
    "What the trace log may take by the settings; place is memory or disk.",
    ("place",),
    "bytes",
    over_replicas="mostrecent",
)

# Logs

LOG_LINES_DROPPED = Metric(
    "zooserve_log_lines_dropped",
    "counter",
    "Lines that did not get into a log, because too many waited or because they could not be written.",
    ("log",),
    "lines",
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All of them, in the order in which they stand here."""
