"""Where programs that speak OpenAI's API differ, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from zooserve.catalogue import OpenAIServer

__all__ = ["DIALECTS", "Dialect"]


@dataclass(frozen=True)
class Dialect:
    """How one of them wants to be asked."""

    limit: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The field of a chat that bounds its answer. Raw completions have `max_tokens` everywhere."""
    states_defaults: bool = True
    """Whether temperature 1 and top_p 1 are said aloud: left out, the server would take others."""
    seeds: int = 2**63
    """How many different seeds there are."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """What every request says besides."""
    penalty_window: str | None = None
    """The field that says over how many tokens penalties reach, where they do not reach over the whole text."""


DIALECTS: Mapping[OpenAIServer, Dialect] = MappingProxyType(
    {
        # Its own defaults are temperature 0.8, top_k 40, top_p 0.95, min_p 0.05 and penalties over the last 64 tokens,
        # and of seeds the largest means "choose one".
        "llama.cpp": Dialect(
            seeds=2**32 - 1,
            # Without progress it notices only after the whole prompt that its client has left (measured: 932 tokens of
            # 932; with it two batches).
            extras={"top_k": 0, "min_p": 0.0, "return_progress": True},
            penalty_window="repeat_last_n",
        ),
        # Reasoning models refuse sampling parameters, at their defaults too.
        "openai": Dialect(states_defaults=False),
        # Many know the bound by its older name alone, and drop the newer one without a word.
        "other": Dialect(limit="max_tokens"),
        # Both take their defaults from the checkpoint's generation_config.json.
        "sglang": Dialect(),
        "vllm": Dialect(),
        "trtllm": Dialect(states_defaults=False),
    }
)
