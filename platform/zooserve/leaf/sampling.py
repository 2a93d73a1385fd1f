"""How a request wants its tokens chosen: validated, then said in llama.cpp's words."""

import math
from dataclasses import dataclass
from typing import Any

from zooserve.errors import BadInput, Unsupported
from zooserve.leaf.contract import DEFAULT_MAX_TOKENS

__all__ = ["Sampling"]

# llama.cpp reads seeds as 32 bits, and the largest of them means "choose one".
_SEEDS = 2**32 - 1


@dataclass(frozen=True)
class Sampling:
    """What TensorRT-LLM's SamplingParams hold, with its defaults: greedy unless something asks for chance.

    Raises BadInput for a value that can never be right, Unsupported for more than one candidate.
    """

    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    best_of: int = 1
    cumulative_logprob: bool = False

    def __post_init__(self) -> None:
        _require(self.max_tokens >= 1, "max_tokens", "at least 1", self.max_tokens)
        _require(self.best_of >= 1, "best_of", "at least 1", self.best_of)
        if self.best_of > 1:
            raise Unsupported(f"best_of is {self.best_of}; this leaf makes one candidate: send 1", param="best_of")
        _require(self.top_k is None or self.top_k >= 0, "top_k", "at least 0", self.top_k)
        _require(
            self.temperature is None or _within(self.temperature, 0, math.inf),
            "temperature",
            "at least 0, finite",
            self.temperature,
        )
        _require(self.top_p is None or _within(self.top_p, 0, 1), "top_p", "between 0 and 1", self.top_p)
        for name in ("frequency_penalty", "presence_penalty"):
            value = getattr(self, name)
            _require(value is None or math.isfinite(value), name, "a finite number", value)
        _require(all(self.stop), "stop", "without empty strings", list(self.stop))

    @property
    def greedy(self) -> bool:
        """Whether always the likeliest token is taken, as TensorRT-LLM decides it."""
        nothing_asked = self.temperature is None and self.top_k is None and self.top_p is None
        return nothing_asked or self.temperature == 0 or self.top_k == 1 or self.top_p == 0

    def to_llama(self, context_tokens: int) -> dict[str, Any]:
        """The fields of a llama.cpp completion request; its own defaults (top_k 40, min_p 0.05, …) are all undone.

        Stop strings are not among them: llama.cpp does not say which one matched, so the engine matches them.
        """
        fields: dict[str, Any] = {
            "max_tokens": self.max_tokens,
            "temperature": 0.0 if self.greedy else 1.0 if self.temperature is None else self.temperature,
            "top_k": self.top_k or 0,
            "top_p": 1.0 if self.top_p is None or self.greedy else self.top_p,
            "min_p": 0.0,
        }
        if self.frequency_penalty or self.presence_penalty:
            fields["frequency_penalty"] = self.frequency_penalty or 0.0
            fields["presence_penalty"] = self.presence_penalty or 0.0
            fields["repeat_last_n"] = context_tokens  # penalise what the whole text has, not its last 64 tokens
        if self.seed is not None:
            fields["seed"] = self.seed % _SEEDS
        if self.cumulative_logprob:
            fields["logprobs"] = 1
        return fields


def _within(value: float, low: float, high: float) -> bool:
    return math.isfinite(value) and low <= value <= high


def _require(holds: bool, name: str, rule: str, value: object) -> None:
    if not holds:
        raise BadInput(f"{name} must be {rule}, and is {value}", param=name)
