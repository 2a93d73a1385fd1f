"""What becomes of a trace that has ended."""

import random
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from zooserve_observability.trace_log.decision import Policy, decided
from zooserve_observability.trace_log.portions import portions_of

NONE = Policy(ratio=0, slow_s=2)
ALL = Policy(ratio=1, slow_s=2)


def decision_of(spans: Any, policy: Policy = NONE) -> str:
    return decided(portions_of(spans), spans[0].trace_id, policy)


@pytest.mark.parametrize(
    ("said", "decision"),
    [
        ({"outcome": "BackendFailed", "error": "failed"}, "error"),
        ({"outcome": "DeadlineExceeded", "error": "failed", "took_ms": 9000}, "error"),
        ({"outcome": "BadInput"}, "left_out"),
        ({"outcome": "Overloaded"}, "left_out"),
        ({"outcome": "cancelled"}, "left_out"),
        ({"took_ms": 2000}, "left_out"),
        ({"took_ms": 2001}, "slow"),
        ({"took_ms": 60_000, "first_token_s": 0.5}, "left_out"),
        ({"took_ms": 60_000, "first_token_s": 2.5}, "slow"),
        ({"took_ms": 60_000, "outcome": "cancelled"}, "slow"),
    ],
)
def test_the_root_decides(request_of: Any, said: dict[str, Any], decision: str) -> None:
    assert decision_of(request_of(1, **said)) == decision
    assert decision_of(request_of(1, **said), ALL) == decision.replace("left_out", "sampled")


def test_without_a_root_any_failed_span_is_an_error_and_the_extent_counts(request_of: Any) -> None:
    _, stage = request_of(1)
    _, late = request_of(1, began_ns=10**18 + 3 * 10**9)
    _, failed = request_of(1)
    assert decision_of([stage]) == "left_out"
    assert decision_of([stage, late]) == "slow"
    object.__setattr__(failed, "error", "gone")
    assert decision_of([stage, failed]) == "error"


def test_a_failed_try_below_a_root_that_is_well_is_no_error(request_of: Any) -> None:
    root, stage = request_of(1)
    object.__setattr__(stage, "error", "gone, and tried again")
    assert decision_of([root, stage]) == "left_out"


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 1.0])
def test_by_id_the_same_traces_are_sampled_as_by_opentelemetry(request_of: Any, ratio: float) -> None:
    chance, theirs = random.Random(7), TraceIdRatioBased(ratio)
    for _ in range(300):
        number = chance.getrandbits(128)
        sampled = theirs.should_sample(None, number, "n").decision is Decision.RECORD_AND_SAMPLE
        spans = request_of(1, trace_id=f"{number:032x}")
        assert decision_of(spans, Policy(ratio, 2)) == ("sampled" if sampled else "left_out")


@pytest.mark.parametrize("told", ["soon", "nan", "inf", "-1", "1e300", ""])
def test_a_time_to_first_token_that_is_no_time_harms_nothing(request_of: Any, told: str) -> None:
    assert decision_of(request_of(1, took_ms=1, first_token_s=told)) in ("left_out", "slow")
