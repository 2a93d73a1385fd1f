"""What is recorded of chats: how answers end, what they hold, where their time goes."""

from typing import Literal, get_args

from prometheus_client import CollectorRegistry

from zooserve_observability import vocabulary

__all__ = ["ChatMetrics", "ChoiceEnd", "ModelLabels", "WasteReason"]

ModelLabels = tuple[str, str, str]
"""Model, version, class."""
ChoiceEnd = Literal["finished", "cancelled", "failed"]
WasteReason = Literal["hang_up", "deadline", "stop", "shutdown", "error"]


class ChatMetrics:
    """Chat's series, in the registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._first_token_s = vocabulary.FIRST_TOKEN.histogram(registry)
        self._output_token_s = vocabulary.OUTPUT_TOKEN.histogram(registry)
        self._admission_s = vocabulary.ADMISSION_WAIT.histogram(registry)
        self._phase_s = vocabulary.ENGINE_PHASE.histogram(registry)
        self._delivery_s = vocabulary.DELIVERY_DELAY.histogram(registry)
        self._issued = vocabulary.CHOICES_ISSUED.counter(registry)
        self._ended = vocabulary.CHOICES_ENDED.counter(registry)
        self._wasted_tokens = vocabulary.WASTED_TOKENS.counter(registry)
        self._waiting = vocabulary.CHAT_WAITING.gauge(registry)
        self._held_tokens = vocabulary.CHAT_HELD_TOKENS.gauge(registry)
        self._budget_tokens = vocabulary.CHAT_BUDGET_TOKENS.gauge(registry)
        self._kv_blocks = vocabulary.LEAF_KV_BLOCKS.counter(registry)
        self._draft_tokens = vocabulary.DRAFT_TOKENS.counter(registry)
        self._acceptance_rate = vocabulary.DRAFT_ACCEPTANCE.histogram(registry)

    def may_be_asked(self, labels: ModelLabels) -> None:
        """Put the series of what becomes of a model's chats there at 0: a rate sees the first of each."""
        self._issued.labels(*labels)
        for outcome in get_args(ChoiceEnd):
            self._ended.labels(*labels, outcome)
        for reason in get_args(WasteReason):
            self._wasted_tokens.labels(*labels, reason)

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

    def budget(self, model: str, tokens: int) -> None:
        """Say how much room a model has in all."""
        self._budget_tokens.labels(model).set(tokens)
