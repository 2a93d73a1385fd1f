"""What the leaf measures, under the names of TensorRT-LLM's Triton metrics, and how to read it back from /metrics.

TensorRT-LLM has no name for prefixes kept in idle slots: `zooserve_leaf_kv_tokens` tells them from live KV. Nor does it
count what it wrote for whoever has left: `zooserve_leaf_generated_tokens_total` does, so that an engine which goes on
writing for nobody shows in the difference to what the router got.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from zooserve.leaf.engine import Usage

__all__ = ["FAMILIES", "Family", "LeafLoad", "load_in", "samples"]


@dataclass(frozen=True)
class Family:
    """A family of series that differ in one label, beside `model` and `version`."""

    description: str
    label: str
    """Empty where there is only one series."""
    values: tuple[str, ...]
    kind: Literal["gauge", "counter"] = "gauge"

    def labels(self, value: str) -> dict[str, str]:
        """The labels that this family adds."""
        return {self.label: value} if self.label else {}


_REQUESTS = "nv_trt_llm_request_metrics"
_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
_TOKENS = "zooserve_leaf_kv_tokens"
_GENERATED = "zooserve_leaf_generated_tokens_total"

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        _REQUESTS: Family(
            "TRT LLM request metrics", "request_type", ("active", "max", "scheduled", "context", "waiting")
        ),
        _BLOCKS: Family(
            "TRT LLM KV cache block metrics",
            "kv_cache_block_type",
            ("max", "free", "used", "tokens_per", "reused", "fraction"),
        ),
        _TOKENS: Family("KV cache tokens of the embedded leaf", "kv_state", ("live", "cached", "max")),
        _GENERATED: Family("Tokens written by the embedded leaf, for whomever", "", ("",), "counter"),
    }
)


def samples(usage: Usage, cached_tokens: int, tokens_per_block: int) -> dict[tuple[str, str], float]:
    """Every series' value, by family and label value, in the order in which they are to be shown.

    What was written comes first: a page that shows the leaf at rest shows all of it.
    """
    blocks = usage.kv_tokens // tokens_per_block
    return {
        (_GENERATED, ""): usage.generated_tokens,
        (_REQUESTS, "active"): usage.active,
        (_REQUESTS, "max"): usage.slots,
        (_REQUESTS, "scheduled"): usage.active,
        (_REQUESTS, "context"): usage.in_prefill,
        (_REQUESTS, "waiting"): usage.waiting,
        (_BLOCKS, "max"): blocks,
        (_BLOCKS, "free"): blocks - usage.live_blocks,
        (_BLOCKS, "used"): usage.live_blocks,
        (_BLOCKS, "tokens_per"): tokens_per_block,
        (_BLOCKS, "reused"): usage.reused_blocks,
        (_BLOCKS, "fraction"): usage.live_blocks / blocks,
        (_TOKENS, "live"): usage.live_tokens,
        (_TOKENS, "cached"): cached_tokens,
        (_TOKENS, "max"): usage.kv_tokens,
    }


@dataclass(frozen=True)
class LeafLoad:
    """The leaf's load as its metrics endpoint tells it; up to a quarter of a second old."""

    active_requests: int
    waiting_requests: int
    live_kv_tokens: int
    cached_kv_tokens: int
    reused_blocks: int
    generated_tokens: int


def load_in(metrics_text: str) -> LeafLoad:
    """Read the load from a /metrics page. Raises LookupError when the page has no leaf on it."""
    return LeafLoad(
        active_requests=_value(metrics_text, _REQUESTS, "active"),
        waiting_requests=_value(metrics_text, _REQUESTS, "waiting"),
        live_kv_tokens=_value(metrics_text, _TOKENS, "live"),
        cached_kv_tokens=_value(metrics_text, _TOKENS, "cached"),
        reused_blocks=_value(metrics_text, _BLOCKS, "reused"),
        generated_tokens=_value(metrics_text, _GENERATED),
    )


def _value(metrics_text: str, family: str, value: str = "") -> int:
    label = rf'\b{FAMILIES[family].label}="{value}"[^}}]*' if value else ""
    series = rf"^{family}{{[^}}]*{label}}} (\S+)$"
    found = re.search(series, metrics_text, re.MULTILINE)
    if found is None:
        raise LookupError(f"no {family} of {value!r} on this page: is the leaf loaded?")
    return int(float(found.group(1)))
