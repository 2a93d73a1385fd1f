"""What becomes of a trace that has ended: pure functions of what its root said.

`error`    the router answered 5xx, or failed: also a deadline that passed. A refusal (4xx) is the caller's error, and a
           caller who left is none: both are ordinary. Of a trace without a root, any span that failed.
`slow`     it took longer than the bound; a chat until its first token, if it got one.
`sampled`  by its id, as OpenTelemetry's TraceIdRatioBased does: every collector that samples by the same ratio agrees.
`left_out` the rest, which nobody but this log keeps.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from zooserve_observability.trace_log.portions import Portion, Root

__all__ = ["KEPT", "Decision", "Policy", "decided"]

Decision = Literal["error", "slow", "sampled", "left_out"]

KEPT: frozenset[Decision] = frozenset({"error", "slow", "sampled"})
_BITS = 64


@dataclass(frozen=True)
class Policy:
    """By what traces are told apart."""

    ratio: float
    """The share of ordinary traces that are kept."""
    slow_s: float


def decided(portions: Iterable[Portion], trace_id: str, policy: Policy) -> Decision:
    """What becomes of the trace that these are the portions of."""
    portions = list(portions)
    roots = [root for portion in portions for root in portion.roots]
    if any(root.failed for root in roots) or (not roots and any(portion.failed for portion in portions)):
        return "error"
    if (max(map(_took_ns, roots)) if roots else _extent_ns(portions)) > policy.slow_s * 1e9:
        return "slow"
    return "sampled" if int(trace_id[-16:], 16) < round(policy.ratio * 2**_BITS) else "left_out"


def _took_ns(root: Root) -> int:
    return root.duration_ns if root.first_token_ns is None else root.first_token_ns


def _extent_ns(portions: Iterable[Portion]) -> int:
    return max(portion.ended_ns for portion in portions) - min(portion.began_ns for portion in portions)
