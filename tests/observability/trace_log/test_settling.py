"""When a trace has ended."""

from typing import Any

from zooserve_observability.trace_log.portions import portions_of
from zooserve_observability.trace_log.settling import Settling


def settling(**bounds: Any) -> Settling:
    return Settling(**{"grace_s": 1, "rootless_s": 30, **bounds})


def put(into: Settling, spans: list[Any], now: float, *, is_late: bool = False) -> None:
    for portion in portions_of(spans):
        into.put(portion, now, is_late=is_late)


def settled(waiting: Settling, now: float) -> list[str]:
    return [trace.trace_id[-1] for trace in waiting.settled(now)]


def test_a_trace_settles_a_while_after_its_root_with_what_came_till_then(request_of: Any) -> None:
    waiting = settling()
    root, stage = request_of(1)
    put(waiting, [stage], 0)
    assert settled(waiting, 29) == []
    put(waiting, [root], 29)
    put(waiting, [request_of(1)[1]], 29.9)
    assert settled(waiting, 29.9) == []
    (trace,) = waiting.settled(30)
    assert [portion.spans for portion in trace.portions] == [1, 1, 1]
    assert waiting.size_bytes == 0
    assert list(waiting.all()) == []


def test_without_a_root_it_settles_once_nothing_has_come_for_long(request_of: Any) -> None:
    waiting = settling()
    put(waiting, request_of(1)[1:], 0)
    put(waiting, request_of(1)[1:], 20)
    assert settled(waiting, 49) == []
    assert settled(waiting, 50) == ["1"]


def test_spans_that_are_late_wait_as_long_as_after_a_root(request_of: Any) -> None:
    waiting = settling()
    put(waiting, request_of(1)[1:], 0, is_late=True)
    assert settled(waiting, 0.9) == []
    assert settled(waiting, 1) == ["1"]


def test_a_trace_that_never_ends_does_not_put_off_its_settling(request_of: Any) -> None:
    waiting = settling()
    for tenth in range(10):
        put(waiting, request_of(1), tenth / 10)
    assert settled(waiting, 1) == ["1"]


def test_over_their_bounds_the_oldest_settle_early(request_of: Any) -> None:
    waiting = settling(max_traces=2)
    for number in (1, 2, 3):
        put(waiting, request_of(number)[1:], 0)
    assert settled(waiting, 0) == ["1"]
    size = waiting.size_bytes // 2
    waiting = settling(max_bytes=size)
    for number in (1, 2, 3):
        put(waiting, request_of(number)[1:], 0)
    assert settled(waiting, 0) == ["1", "2"]
    assert waiting.size_bytes <= size
