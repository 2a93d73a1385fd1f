"""The thread behind the log: from portions to the disk, whatever the disk does."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zooserve_observability.trace_log import TraceLog
from zooserve_observability.trace_log.decision import Policy
from zooserve_observability.trace_log.keeping import TraceKeeping
from zooserve_observability.trace_log.portions import portions_of
from zooserve_observability.trace_log.reading import TraceReader
from zooserve_observability.trace_log.store import Settled, TraceStore
from zooserve_observability.trace_log.unclaimed import Unclaimed

MIB = 2**20
POLICY = Policy(ratio=0, slow_s=2)


class Kept:
    """A keeping, driven by hand."""

    def __init__(self, path: Path, counted: Any, **bounds: Any) -> None:
        self.path = path
        self.forwarded: list[Settled] = []
        self.store = TraceStore(path, MIB)
        self.keeping = TraceKeeping(self.store, POLICY, counted.metrics, self.forwarded.append, **bounds)

    def put(self, *requests: Any) -> None:
        """Bring these requests' spans."""
        self.keeping.put(portions_of([span for spans in requests for span in spans]))

    def known(self) -> set[str]:
        """The requests on the disk."""
        return {found.request_id for found in TraceReader(self.path).requests("newest", 9999)}


@pytest.fixture
def kept(tmp_path: Path, counted: Any) -> Iterator[Kept]:
    kept = Kept(tmp_path / "traces.db", counted)
    yield kept
    kept.store.close()


def test_a_trace_is_written_decided_and_counted_once_it_has_settled(kept: Kept, counted: Any, request_of: Any) -> None:
    kept.put(request_of(1), request_of(2, took_ms=5000), request_of(3, error="failed"))
    kept.keeping.settle(0)
    assert not kept.path.exists()
    kept.keeping.settle(1)
    assert kept.known() == {"req_1", "req_2", "req_3"}
    assert [trace.decision for trace in kept.forwarded] == ["slow", "error"]
    assert [counted.decided(name) for name in ("error", "slow", "sampled", "left_out")] == [1, 1, 0, 1]
    assert counted.exported("log") == 6
    assert counted.bytes_of("disk") == kept.path.stat().st_size


def test_what_is_handed_on_is_the_whole_trace(kept: Kept, request_of: Any) -> None:
    root, stage = request_of(1, error="failed")
    kept.put([stage])
    kept.keeping.settle(0)
    kept.put([root])
    kept.keeping.settle(0.5)
    kept.keeping.settle(1.5)
    (trace,) = kept.forwarded
    assert trace.spans == 2


def test_late_spans_are_written_and_handed_on_as_their_trace_was_decided(
    kept: Kept, counted: Any, request_of: Any
) -> None:
    kept.put(request_of(1, error="failed")[:1], request_of(2)[:1])
    kept.keeping.settle(0)
    kept.keeping.settle(1)
    kept.put(request_of(1)[1:], request_of(2)[1:])
    kept.keeping.settle(2)
    kept.keeping.settle(3)
    assert [(trace.decision, trace.spans) for trace in kept.forwarded] == [("error", 1), ("error", 1)]
    assert TraceReader(kept.path).of_request("req_2")[0].spans == 2
    assert counted.decided("error") == counted.decided("left_out") == 1


def test_each_request_of_a_callers_trace_is_decided_by_its_own_root(kept: Kept, counted: Any, request_of: Any) -> None:
    trace_id = "ab" * 16
    kept.put(request_of(1, trace_id=trace_id))
    kept.keeping.settle(0)
    kept.keeping.settle(1)
    kept.put(request_of(2, trace_id=trace_id, error="failed"))
    kept.keeping.settle(2)
    kept.keeping.settle(3)
    (failed,) = kept.forwarded
    assert [root.request_id for portion in failed.portions for root in portion.roots] == ["req_2"]
    assert kept.known() == {"req_1", "req_2"}
    kept.put(request_of(3, trace_id=trace_id))
    kept.keeping.settle(4)
    kept.keeping.settle(5)
    assert len(kept.forwarded) == 1
    assert [counted.decided(name) for name in ("error", "left_out")] == [1, 2]
    assert {found.decision for found in TraceReader(kept.path).of_trace(trace_id)} == {"error"}


def test_what_goes_wrong_with_one_trace_is_said_and_the_thread_goes_on(
    tmp_path: Path, counted: Any, request_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path / "traces.db", counted)
    refused = iter([ValueError("no room for this one")])

    def hand_on(trace: Settled) -> None:
        for error in refused:
            raise error

    kept.keeping._hand_on = hand_on
    with kept.keeping.running():
        kept.put(request_of(1, error="failed"))
        while "no room for this one" not in caplog.text:
            time.sleep(0.02)
        kept.put(request_of(2, error="failed"))
    assert kept.known() == {"req_2"}


def test_at_the_end_everything_settles(kept: Kept, request_of: Any) -> None:
    with kept.keeping.running():
        kept.put(request_of(1), request_of(2)[1:])
    assert kept.known() == {"req_1"}
    assert len(TraceReader(kept.path).spans(f"{2:032x}")) == 1


def test_more_than_may_wait_is_dropped_and_counted(tmp_path: Path, counted: Any, request_of: Any) -> None:
    size = sum(len(portion.body) for portion in portions_of(request_of(1)))
    kept = Kept(tmp_path / "traces.db", counted, most_bytes=2 * size)
    kept.put(*(request_of(number) for number in range(1, 6)))
    assert counted.dropped("log", "queue_full") == 6
    kept.keeping.settle(0)
    kept.keeping.settle(1)
    assert kept.known() == {"req_1", "req_2"}
    kept.store.close()


async def test_without_a_place_on_the_disk_the_memory_works_on_and_all_of_it_recovers(
    tmp_path: Path, counted: Any, request_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "gone"
    kept = Kept(folder / "traces.db", counted)
    log = TraceLog(MIB, also=kept.keeping.put)
    for number in range(10):
        log.take(portions_of(request_of(number)))
        kept.keeping.settle(2 * number)
        kept.keeping.settle(2 * number + 1)
    assert [len(log.spans(f"{number:032x}")) for number in range(10)] == [2] * 10
    assert counted.dropped("log", "disk") == 20
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "kept in memory alone" in caplog.text
    folder.mkdir()
    log.take(portions_of(request_of(11)))
    kept.keeping.settle(100)
    kept.keeping.settle(101)
    assert kept.known() == {"req_11"}
    assert counted.exported("log") == 2
    kept.store.close()


def test_its_series_stand_at_0_before_anything_happens(kept: Kept, counted: Any) -> None:
    assert kept.keeping is not None
    assert [counted.dropped("log", reason) for reason in ("queue_full", "failed", "disk")] == [0, 0, 0]
    assert counted.exported("log") == counted.decided("error") == 0


def test_a_request_whose_root_comes_long_after_its_first_spans_is_handed_on_whole_and_counted_once(
    kept: Kept, counted: Any, request_of: Any
) -> None:
    root, stage = request_of(1, error="failed")
    kept.put([stage])
    kept.keeping.settle(0)
    kept.keeping.settle(30)
    assert kept.forwarded == []
    kept.put([root])
    kept.keeping.settle(60)
    kept.keeping.settle(61)
    (trace,) = kept.forwarded
    assert [portion.spans for portion in trace.portions] == [1, 1]
    assert [counted.decided(name) for name in ("error", "left_out")] == [1, 0]
    assert TraceReader(kept.path).spans(root.trace_id) == [stage, root]


def test_a_request_that_goes_on_for_long_and_is_sampled_by_its_id_is_counted_once(
    tmp_path: Path, counted: Any, request_of: Any
) -> None:
    store = TraceStore(tmp_path / "traces.db", MIB)
    keeping = TraceKeeping(store, Policy(ratio=1, slow_s=2), counted.metrics)
    root, stage = request_of(1)
    for spans, now in (([stage], 0), ([root], 60)):
        keeping.put(portions_of(spans))
        keeping.settle(now)
        keeping.settle(now + 30)
    assert counted.decided("sampled") == 1
    store.close()


def test_what_no_root_claims_is_forgotten_at_a_bound(request_of: Any) -> None:
    portions = [portions_of(request_of(number)[1:])[0] for number in range(4)]
    unclaimed = Unclaimed(max_bytes=2 * len(portions[0].body))
    for portion in portions[:3]:
        unclaimed.keep(portion.trace_id, [portion])
    assert unclaimed.taken(portions[0].trace_id) == ()
    assert unclaimed.taken(portions[1].trace_id) == (portions[1],)
    unclaimed.keep(portions[2].trace_id, [portions[3]])
    assert unclaimed.taken(portions[2].trace_id) == (portions[2], portions[3])
    assert unclaimed.size_bytes == 0
