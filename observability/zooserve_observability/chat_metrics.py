"""The part of the vocabulary that speaks of chat: how answers end, what they hold, where their time goes."""

from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["ChatMetrics", "ChoiceEnd", "ModelLabels", "WasteReason"]

ModelLabels = tuple[str, str, str]
"""Model, version, class."""
ChoiceEnd = Literal["finished", "cancelled", "failed"]
WasteReason = Literal["hang_up", "deadline", "stop", "shutdown", "error"]

_LABELS = ("model", "version", "class")
_DURATION_BUCKETS_S = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_DELAY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048)
# Those of OpenTelemetry's gen_ai.server.time_per_output_token.
_TOKEN_BUCKETS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_RATE_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class ChatMetrics:
    """Chat's series, in the registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._first_token_s = Histogram(
            "zooserve_time_to_first_token_seconds",
            "From the request's first byte to its first generated token, however the answer ended.",
            _LABELS,
            buckets=_DURATION_BUCKETS_S,
            registry=registry,
        )
        self._output_token_s = Histogram(
            "zooserve_time_per_output_token_seconds",
            "From an answer's first token to its last, divided by the tokens after the first, as the router sees it.",
            _LABELS,
            buckets=_TOKEN_BUCKETS_S,
            registry=registry,
        )
        self._admission_s = Histogram(
            "zooserve_admission_wait_seconds",
            "How long an admitted chat waited for room in its model's budget.",
            _LABELS,
            buckets=_DURATION_BUCKETS_S,
            registry=registry,
        )
        self._phase_s = Histogram(
            "zooserve_engine_phase_seconds",
            "Where the engine says that an answer's time went: queue, prefill or decode.",
            (*_LABELS, "phase"),
            buckets=_DURATION_BUCKETS_S,
            registry=registry,
        )
        self._delivery_s = Histogram(
            "zooserve_delivery_delay_seconds",
            "What an answer took as the router saw it, less what the engine says: the ways there and back.",
            _LABELS,
            buckets=_DELAY_BUCKETS_S,
            registry=registry,
        )
        self._issued = Counter(
            "zooserve_chat_choices_issued",
            "Choices that were admitted and asked for; as many have ended once nothing is in flight.",
            _LABELS,
            registry=registry,
        )
        self._ended = Counter(
            "zooserve_chat_choices_ended",
            "Choices that ended; outcome is finished, cancelled (the caller left, the deadline passed, the router "
            "stopped) or failed.",
            (*_LABELS, "outcome"),
            registry=registry,
        )
        self._wasted_tokens = Counter(
            "zooserve_wasted_tokens",
            "Tokens generated for nobody; reason is hang_up, deadline, shutdown or error where an answer did not get "
            "to its end, stop where the engine wrote past a stop string.",
            (*_LABELS, "reason"),
            registry=registry,
        )
        self._waiting = Gauge(
            "zooserve_chat_waiting",
            "Chats that wait for room in their model's budget.",
            ("model",),
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._held_tokens = Gauge(
            "zooserve_chat_held_tokens",
            "Tokens of a model's budget that are taken: prompts and everything granted.",
            ("model",),
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._kv_blocks = Counter(
            "zooserve_leaf_kv_blocks",
            "Blocks of prompts whose KV the leaf had (state reused) and had not (state missed).",
            (*_LABELS, "state"),
            registry=registry,
        )
        self._draft_tokens = Counter(
            "zooserve_draft_tokens",
            "Tokens that speculative decoding proposed; state says whether they were accepted or rejected.",
            (*_LABELS, "state"),
            registry=registry,
        )
        self._acceptance_rate = Histogram(
            "zooserve_draft_acceptance_rate",
            "The acceptance rate that the engine reports of an answer decoded with draft tokens.",
            _LABELS,
            buckets=_RATE_BUCKETS,
            registry=registry,
        )

    def first_token(self, labels: ModelLabels, spent_s: float) -> None:
        """Note how long the first token of an answer took."""
        self._first_token_s.labels(*labels).observe(spent_s)

    def token_pace(self, labels: ModelLabels, seconds_a_token: float) -> None:
        """Note how fast one choice came after its first token."""
        self._output_token_s.labels(*labels).observe(seconds_a_token)

    def admitted(self, labels: ModelLabels, choices: int, waited_s: float) -> None:
        """Count the choices of a request that was admitted, and its wait."""
        self._issued.labels(*labels).inc(choices)
        self._admission_s.labels(*labels).observe(waited_s)

    def ended(self, labels: ModelLabels, outcome: ChoiceEnd, choices: int) -> None:
        """Count choices that ended so."""
        if choices:
            self._ended.labels(*labels, outcome).inc(choices)

    def wasted(self, labels: ModelLabels, reason: WasteReason, tokens: int) -> None:
        """Count tokens that nobody got the good of."""
        if tokens:
            self._wasted_tokens.labels(*labels, reason).inc(tokens)

    def engine_spent(self, labels: ModelLabels, queue_s: float, prefill_s: float, decode_s: float) -> None:
        """Note an answer's phases, as its engine tells them."""
        for phase, spent_s in (("queue", queue_s), ("prefill", prefill_s), ("decode", decode_s)):
            self._phase_s.labels(*labels, phase).observe(spent_s)

    def delivered(self, labels: ModelLabels, delay_s: float) -> None:
        """Note what came on top of the engine's own time."""
        self._delivery_s.labels(*labels).observe(delay_s)

    def prompt_blocks(self, labels: ModelLabels, reused: int, missed: int) -> None:
        """Count a prompt's KV blocks."""
        self._kv_blocks.labels(*labels, "reused").inc(reused)
        self._kv_blocks.labels(*labels, "missed").inc(missed)

    def drafted(self, labels: ModelLabels, proposed: int, accepted: int, rate: float | None) -> None:
        """Count an answer's draft tokens."""
        self._draft_tokens.labels(*labels, "accepted").inc(accepted)
        self._draft_tokens.labels(*labels, "rejected").inc(proposed - accepted)
        if rate is not None:
            self._acceptance_rate.labels(*labels).observe(rate)

    def room(self, model: str, held_tokens: int, waiting: int) -> None:
        """Say how much of a model's budget is taken, and how many wait for it."""
        self._held_tokens.labels(model).set(held_tokens)
        self._waiting.labels(model).set(waiting)
