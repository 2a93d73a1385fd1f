"""The part on the disk: what it keeps, what it forgets first, what it does with a file that is not its own."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from zooserve_observability.spans import Span
from zooserve_observability.trace_log.portions import portions_of
from zooserve_observability.trace_log.reading import NoTraceLog, TraceReader
from zooserve_observability.trace_log.store import Settled, StoreFailed, TraceStore

MIB = 2**20


def settled(spans: list[Span], decision: Any = "sampled") -> Settled:
    return Settled(spans[0].trace_id, decision, tuple(portions_of(spans)))


def heavy(spans: list[Span]) -> list[Span]:
    """The same with some 4 kB that nothing can compress."""
    chance = random.Random(spans[0].trace_id)
    said = {**spans[1].attributes, "ballast": chance.randbytes(2000).hex()}
    stage = spans[1]
    return [
        spans[0],
        Span(stage.trace_id, stage.span_id, stage.parent_id, stage.name, stage.start_ns, stage.end_ns, said),
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "traces.db"


@pytest.fixture
def store(path: Path) -> Iterator[TraceStore]:
    store = TraceStore(path, 64 * MIB)
    yield store
    store.close()


def test_what_is_written_is_found_by_request_and_by_trace(store: TraceStore, path: Path, request_of: Any) -> None:
    spans = request_of(7, took_ms=12, first_token_s=0.005)
    store.write([settled(spans, "slow"), settled(request_of(8))])
    reader = TraceReader(path)
    (found,) = reader.of_request("req_7")
    assert (found.trace_id, found.decision, found.model, found.version) == (spans[0].trace_id, "slow", "embed", "1")
    assert (found.slo_class, found.outcome, found.route, found.failed) == ("interactive", "ok", "/v1/embeddings", 0)
    assert (found.duration_ns, found.first_token_ns, found.spans) == (12_000_000, 5_000_000, 2)
    assert reader.of_trace(found.trace_id) == [found]
    assert reader.spans(found.trace_id) == spans
    assert reader.of_request("req_9") == []
    assert reader.spans("f" * 32) == []


def test_a_request_is_found_by_the_beginning_of_its_id(store: TraceStore, path: Path, request_of: Any) -> None:
    store.write([settled(request_of(1234567)), settled(request_of(1234599))])
    reader = TraceReader(path)
    assert [found.request_id for found in reader.of_request("req_12345")] == ["req_1234567", "req_1234599"]
    assert [found.request_id for found in reader.of_request("req_1234567")] == ["req_1234567"]
    assert reader.of_request("req_") == reader.of_request("req_%%%") == []


def test_lists_are_by_time_by_slowness_or_of_failures(store: TraceStore, path: Path, request_of: Any) -> None:
    store.write(
        [
            settled(request_of(1, took_ms=50, began_ns=3)),
            settled(request_of(2, took_ms=900, first_token_s=0.001, began_ns=2)),
            settled(request_of(3, took_ms=80, began_ns=1, error="failed"), "error"),
        ]
    )
    reader = TraceReader(path)
    assert [found.request_id for found in reader.requests("newest", 9)] == ["req_1", "req_2", "req_3"]
    assert [found.request_id for found in reader.requests("slowest", 2)] == ["req_3", "req_1"]
    assert [found.request_id for found in reader.requests("newest", 9, errors=True)] == ["req_3"]


def test_late_spans_are_appended_and_a_worse_decision_holds(store: TraceStore, path: Path, request_of: Any) -> None:
    root, stage = request_of(1)
    store.write([settled([root], "error")])
    store.write([settled([stage], "left_out")])
    assert TraceReader(path).spans(root.trace_id) == [root, stage]
    (found,) = TraceReader(path).of_request("req_1")
    assert (found.decision, found.spans) == ("error", 2)


def test_a_trace_of_several_requests_has_them_all(store: TraceStore, path: Path, request_of: Any) -> None:
    trace_id = "ab" * 16
    store.write([settled([*request_of(1, trace_id=trace_id), *request_of(2, trace_id=trace_id)])])
    assert {found.request_id for found in TraceReader(path).of_trace(trace_id)} == {"req_1", "req_2"}


def test_the_file_never_passes_its_bound_and_the_least_worthy_go_first_by_age(path: Path, request_of: Any) -> None:
    store = TraceStore(path, MIB)
    decisions = {number: ("error", "slow", "sampled", "left_out")[number % 4] for number in range(2000)}
    for number, decision in decisions.items():
        store.write([settled(heavy(request_of(number)), decision)])
        assert store.size_bytes <= MIB + MIB // 2  # with the journal of what is being changed
        assert path.stat().st_size <= MIB
    store.close()
    kept = [int(found.request_id[4:]) for found in TraceReader(path).requests("newest", 9999)]
    assert 100 < len(kept) < 400
    left = {decision: [number for number in kept if decisions[number] == decision] for decision in decisions.values()}
    assert {*left["sampled"], *left["left_out"]} <= set(range(1990, 2000))  # since room was made last
    worthy = sorted([*left["error"], *left["slow"]])
    assert worthy == [number for number in range(worthy[0], 2000) if number % 4 in (0, 1)]


def test_a_trace_that_never_ends_is_forgotten_by_its_age_all_the_same(path: Path, request_of: Any) -> None:
    store = TraceStore(path, MIB)
    endless = "ab" * 16
    for number in range(1000):
        store.write([settled(heavy(request_of(number, trace_id=endless))), settled(heavy(request_of(number)))])
    store.close()
    newest = TraceReader(path).requests("newest", 9999)
    assert len({found.trace_id for found in newest}) > 10


def test_one_trace_that_is_larger_than_the_file_fails_and_others_are_written_after_it(
    path: Path, request_of: Any
) -> None:
    store = TraceStore(path, MIB)
    huge = [span for _ in range(400) for span in heavy(request_of(1))]
    huge = [
        Span(span.trace_id, f"{place:016x}", "", span.name, 1, 2, {"b": random.Random(place).randbytes(2000).hex()})
        for place, span in enumerate(huge)
    ]
    with pytest.raises(StoreFailed, match="full"):
        store.write([settled(huge)])
    store.write([settled(request_of(2))])
    assert [found.request_id for found in TraceReader(path).requests("newest", 9)] == ["req_2"]
    store.close()


def is_set_aside(path: Path, caplog: pytest.LogCaptureFixture) -> bool:
    told = [record for record in caplog.records if "is no trace log that can be used" in record.getMessage()]
    ours = all(record.name.startswith("zooserve.") for record in told)  # the supervisor's log has these alone
    return path.with_name("traces.db.set-aside").exists() and bool(told) and ours


@pytest.mark.parametrize("junk", [b"hello", os.urandom(100_000), b"SQLite format 3\0" + os.urandom(50_000)])
def test_a_file_that_is_no_database_is_set_aside(
    path: Path, store: TraceStore, request_of: Any, caplog: pytest.LogCaptureFixture, junk: bytes
) -> None:
    path.write_bytes(junk)
    store.write([settled(request_of(1))])
    assert is_set_aside(path, caplog)
    assert path.with_name("traces.db.set-aside").read_bytes() == junk
    assert len(TraceReader(path).requests("newest", 9)) == 1


def test_another_programs_database_is_set_aside(
    path: Path, store: TraceStore, request_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE bookmarks (url TEXT)")
    foreign.close()
    with pytest.raises(NoTraceLog, match="no trace log of this version"):
        TraceReader(path).requests("newest", 9)
    store.write([settled(request_of(1))])
    assert is_set_aside(path, caplog)


def test_a_database_of_another_version_is_set_aside(
    path: Path, store: TraceStore, request_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store.write([settled(request_of(1))])
    store.close()
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 999")
    newer.close()
    store.write([settled(request_of(2))])
    assert "its schema has version 999" in caplog.text
    assert [found.request_id for found in TraceReader(path).requests("newest", 9)] == ["req_2"]


def test_a_database_that_is_damaged_while_it_is_open_is_set_aside_and_begun_anew(
    path: Path, store: TraceStore, request_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store.write([settled(heavy(request_of(number))) for number in range(200)])
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(40 * 4096))
    store.write([settled(request_of(999))])
    assert is_set_aside(path, caplog)
    assert [found.request_id for found in TraceReader(path).requests("newest", 9)] == ["req_999"]


def test_it_is_nobody_elses_to_read(path: Path, store: TraceStore, request_of: Any) -> None:
    store.write([settled(request_of(1))])
    assert path.stat().st_mode & 0o777 == 0o600


WRITER = """
import sys
from pathlib import Path
from zooserve_observability.spans import Span
from zooserve_observability.trace_log.portions import portions_of
from zooserve_observability.trace_log.store import Settled, TraceStore
store = TraceStore(Path(sys.argv[1]), 2**22)
number = 0
while True:
    number += 1
    said = {"zooserve.request_id": f"req_{number}", "ballast": "x" * 500}
    span = Span(f"{number:032x}", "1" * 16, "", "zooserve.request", number, number + 1, said)
    store.write([Settled(span.trace_id, "sampled", tuple(portions_of([span])))])
    print(number, flush=True)
"""


def test_what_was_written_is_read_after_kill_9_and_by_others_meanwhile(path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    written = 0
    while written < 300:
        written = int(writer.stdout.readline())
        if written % 50 == 0:
            assert int(TraceReader(path).requests("newest", 1)[0].request_id[4:]) >= written
    writer.send_signal(signal.SIGKILL)
    rest = writer.communicate()[0].split()
    written = int(rest[-1]) if rest else written
    found = {request.request_id for request in TraceReader(path).requests("newest", 10_000)}
    assert {f"req_{number}" for number in range(1, written + 1)} <= found
    store = TraceStore(path, 2**22)
    span = Span("ab" * 16, "1" * 16, "", "zooserve.request", 1, 2, {"zooserve.request_id": "after"})
    store.write([settled([span])])
    store.close()
    assert len(TraceReader(path).of_request("after")) == 1


def test_a_reader_that_sleeps_in_a_question_holds_writing_up_but_not_for_ever(
    path: Path, request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zooserve_observability.trace_log.store._BUSY_S", 0.01)
    store = TraceStore(path, MIB)
    store.write([settled(request_of(1))])
    asleep = sqlite3.connect(path, isolation_level=None)
    asleep.execute("BEGIN")
    asleep.execute("SELECT * FROM traces").fetchone()
    with pytest.raises(StoreFailed, match="locked"):
        store.write([settled(request_of(2))])
    asleep.close()
    store.write([settled(request_of(3))])
    store.close()
    assert {found.request_id for found in TraceReader(path).requests("newest", 9)} == {"req_1", "req_3"}


def test_no_file_is_told_and_none_is_made(path: Path) -> None:
    with pytest.raises(NoTraceLog, match="is not there"):
        TraceReader(path).requests("newest", 1)
    assert not path.exists()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A real file system of 1 MB."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a file system can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 4096)


def test_on_a_full_disk_writing_fails_and_goes_on_once_there_is_room(tmp_path: Path, request_of: Any) -> None:
    with small_disk(tmp_path / "small") as disk:
        store = TraceStore(disk / "traces.db", 64 * MIB)
        store.write([settled(request_of(1))])
        ballast = disk / "ballast"
        fill(ballast)
        for number in range(2, 6):
            with pytest.raises(StoreFailed):
                store.write([settled(heavy(request_of(number)))])
        assert [found.request_id for found in TraceReader(disk / "traces.db").requests("newest", 9)] == ["req_1"]
        ballast.unlink()
        store.write([settled(request_of(9))])
        found = {found.request_id for found in TraceReader(disk / "traces.db").requests("newest", 9)}
        assert found == {"req_1", "req_9"}
        store.close()


LIMITED = textwrap.dedent("""
    import resource, sys
    from pathlib import Path
    from zooserve_observability.spans import Span
    from zooserve_observability.trace_log.portions import portions_of
    from zooserve_observability.trace_log.reading import TraceReader
    from zooserve_observability.trace_log.store import Settled, StoreFailed, TraceStore
    import random

    path = Path(sys.argv[1])
    store = TraceStore(path, 2**26)

    def write(name, ballast):
        said = {"zooserve.request_id": name, "ballast": random.randbytes(ballast).hex()}
        span = Span(f"{random.getrandbits(128):032x}", "1" * 16, "", "zooserve.request", 1, 2, said)
        store.write([Settled(span.trace_id, "sampled", tuple(portions_of([span])))])

    write("before", 10)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    failed = 0
    for _ in range(100):
        try:
            write("meanwhile", 10_000)
        except StoreFailed:
            failed += 1
    assert failed > 50, failed
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    write("after", 10)
    store.close()
    found = {request.request_id for request in TraceReader(path).requests("newest", 999)}
    assert {"before", "after"} <= found, found
""")


def test_a_file_that_may_not_grow_is_as_a_full_disk(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_full_disk_does_not_have_the_whole_file_looked_through_again_and_again(
    tmp_path: Path, request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    connect = sqlite3.connect

    def connected(*given: Any, **options: Any) -> sqlite3.Connection:
        database = connect(*given, **options)
        database.set_trace_callback(asked.append)
        return database

    with small_disk(tmp_path / "small") as disk:
        TraceStore(disk / "traces.db", 64 * MIB).write([settled(request_of(1))])
        monkeypatch.setattr(sqlite3, "connect", connected)
        store = TraceStore(disk / "traces.db", 64 * MIB)
        fill(disk / "ballast")
        for number in range(2, 6):
            with pytest.raises(StoreFailed):
                store.write([settled(heavy(request_of(number)))])
        assert len([each for each in asked if "quick_check" in each]) == 1
        store.close()


def test_after_the_file_is_removed_a_new_one_is_begun(store: TraceStore, path: Path, request_of: Any) -> None:
    store.write([settled(request_of(1))])
    path.unlink()
    store.write([settled(request_of(2))])
    assert [found.request_id for found in TraceReader(path).requests("newest", 9)] == ["req_2"]


def test_a_file_that_was_allowed_to_be_larger_is_made_smaller(path: Path, request_of: Any) -> None:
    large = TraceStore(path, 4 * MIB)
    for number in range(900):
        large.write([settled(heavy(request_of(number)))])
    large.close()
    assert path.stat().st_size > 3 * MIB
    small = TraceStore(path, MIB)
    small.write([settled(request_of(999))])
    assert path.stat().st_size <= MIB
    small.close()
    kept = [int(found.request_id[4:]) for found in TraceReader(path).requests("newest", 9999)]
    assert len(kept) > 100
    assert sorted(kept) == [*range(min(kept), 900), 999]
