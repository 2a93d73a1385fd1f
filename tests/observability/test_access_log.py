"""The access log on real files, pipes and processes: whole lines, a bounded size, and nobody who waits for it."""

import fcntl
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from zooserve.settings import AccessLogSettings, Settings
from zooserve_observability.access_log import FIELDS, AccessLine, AccessLog
from zooserve_observability.line_files import LineStream, RotatedFile
from zooserve_observability.log_metrics import LogMetrics

MAX_BYTES = 64 * 2**10


def line(request_id: str = "req_1", **changed: object) -> AccessLine:
    values: dict[str, Any] = {
        "ended_s": 1_700_000_000.1234,
        "request_id": request_id,
        "trace_id": "ab" * 16,
        "key_id": "anonymous",
        "method": "POST",
        "route": "/v1/embeddings",
        "status": 200,
        "outcome": "ok",
        "error": None,
        "failed_stage": None,
        "model": "embed",
        "version": "1",
        "slo_class": "interactive",
        "input_tokens": 4,
        "output_tokens": None,
        "cached_tokens": None,
        "reasoning_tokens": None,
        "duration_ms": 12.5,
        "time_to_first_token_ms": None,
        "phases_ms": {"parse": 0.1, "zoo": 11.0},
        "bytes_in": 40,
        "bytes_out": 5000,
        "pid": 17,
    }
    return AccessLine(**{**values, **changed})


def lines_of(*files: Path) -> list[dict]:
    """Every line of these files; one that is not whole fails the test."""
    texts = [file.read_bytes() for file in files if file.exists()]
    assert all(text.endswith(b"\n") for text in texts if text)
    return [json.loads(each) for text in texts for each in text.splitlines()]


def generations(file: Path) -> list[Path]:
    """The file and those before it, oldest first."""
    return [*(file.with_name(f"{file.name}.{number}") for number in (3, 2, 1)), file]


def lost(registry: CollectorRegistry) -> float:
    value = registry.get_sample_value("zooserve_log_lines_dropped_total", {"log": "access"})
    assert value is not None
    return value


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "access.jsonl"


def log_to(file: Path, registry: CollectorRegistry, **more: Any) -> AccessLog:
    return AccessLog(RotatedFile(file, MAX_BYTES), LogMetrics(registry), **more)


def test_a_line_is_one_json_object_with_the_fields_in_their_order(file: Path, registry: CollectorRegistry) -> None:
    log = log_to(file, registry)
    with log.writing():
        log.put(line())
    (told,) = lines_of(file)
    assert told == {
        "time": "2023-11-14T22:13:20.123Z",
        "request_id": "req_1",
        "trace_id": "ab" * 16,
        "key_id": "anonymous",
        "method": "POST",
        "route": "/v1/embeddings",
        "status": 200,
        "outcome": "ok",
        "model": "embed",
        "version": "1",
        "class": "interactive",
        "input_tokens": 4,
        "duration_ms": 12.5,
        "phases_ms": {"parse": 0.1, "zoo": 11.0},
        "bytes_in": 40,
        "bytes_out": 5000,
        "pid": 17,
    }
    assert list(told) == [name for name in FIELDS if name in told]


@pytest.mark.parametrize("hostile", ["a\nb", "a\r\n{}", '"}', "\u2028\x00\x1b[31m", "ä" * 300])
def test_no_value_breaks_a_line(file: Path, registry: CollectorRegistry, hostile: str) -> None:
    log = log_to(file, registry)
    with log.writing():
        log.put(line(hostile, model=hostile))
        log.put(line("next"))
    assert [told["request_id"] for told in lines_of(file)] == [hostile, "next"]


def test_the_log_and_its_folder_are_for_their_owner_alone(file: Path, registry: CollectorRegistry) -> None:
    RotatedFile(file, MAX_BYTES).append(b"{}\n")
    assert [path.stat().st_mode & 0o777 for path in (file, file.parent)] == [0o600, 0o700]


def test_the_newest_lines_stay_and_the_whole_is_bounded(file: Path, registry: CollectorRegistry) -> None:
    log = log_to(file, registry)
    with log.writing():
        for number in range(1000):
            log.put(line(f"req_{number}"))
    kept = [told["request_id"] for told in lines_of(*generations(file))]
    assert kept == [f"req_{number}" for number in range(1000 - len(kept), 1000)]
    assert MAX_BYTES / 2 < sum(path.stat().st_size for path in file.parent.glob("access.jsonl*")) <= MAX_BYTES
    assert lost(registry) == 0


WRITER = """
import sys
from pathlib import Path
from zooserve_observability.line_files import RotatedFile
lines = RotatedFile(Path(sys.argv[1]), int(sys.argv[2]))
sys.stdin.readline()
number = 0
while number < int(sys.argv[4]):
    name = sys.argv[3].encode()
    lines.append(b"".join(b'{"from": "%s", "number": %d}\\n' % (name, each) for each in range(number, number + 500)))
    number += 500
    print(number, flush=True)
"""


def writer(file: Path, max_bytes: int, name: str, most: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(file), str(max_bytes), name, str(most)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def all_at_once(*writers: "subprocess.Popen[str]") -> None:
    """Let them run to their ends together."""
    for each in writers:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    for each in writers:
        each.communicate(timeout=60)


def test_replicas_share_a_file_and_lose_nothing(file: Path) -> None:
    all_at_once(*(writer(file, 64 * 2**20, name, 5000) for name in ("a", "b", "c")))
    told = lines_of(file)
    for name in ("a", "b", "c"):
        assert [each["number"] for each in told if each["from"] == name] == list(range(5000))


def test_replicas_that_share_a_small_file_keep_its_bound_and_whole_lines(file: Path) -> None:
    all_at_once(*(writer(file, 128 * 2**10, name, 100_000) for name in ("a", "b", "c")))
    told = lines_of(*generations(file))
    assert sum(path.stat().st_size for path in generations(file)) <= 128 * 2**10
    for name in {each["from"] for each in told}:
        numbers = [each["number"] for each in told if each["from"] == name]
        assert numbers == list(range(100_000 - len(numbers), 100_000))


def test_a_killed_writer_leaves_whole_lines_once_somebody_writes_again(file: Path) -> None:
    for kill in range(8):
        process = writer(file, 4 * 2**20, str(kill), 10**9)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        RotatedFile(file, 4 * 2**20).append(b'{"from": "after", "number": 0}\n')
        lines_of(*generations(file))


def test_nobody_writes_while_another_does(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, flock = RotatedFile(file, MAX_BYTES), fcntl.flock
    lines.append(b'{"number": 1}\n')
    with (file.parent / ".access.jsonl.lock").open() as held:
        flock(held, fcntl.LOCK_EX)
        monkeypatch.setattr(
            "zooserve_observability.line_files.fcntl.flock", lambda at, how: flock(at, how | fcntl.LOCK_NB)
        )
        with pytest.raises(BlockingIOError):  # it would wait
            lines.append(b'{"number": 2}\n')
    assert lines_of(file) == [{"number": 1}]


def test_half_a_line_that_was_left_is_cut_off_before_the_next(file: Path) -> None:
    lines = RotatedFile(file, MAX_BYTES)
    lines.append(b'{"number": 1}\n')
    with file.open("ab") as torn:
        torn.write(b'{"number": 2, "requ')
    lines.append(b'{"number": 3}\n')
    assert lines_of(file) == [{"number": 1}, {"number": 3}]


def test_a_file_of_nothing_but_half_a_line_begins_anew(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b'{"requ')
    RotatedFile(file, MAX_BYTES).append(b'{"number": 1}\n')
    assert lines_of(file) == [{"number": 1}]


FULL_DISK = """
import resource, sys
from pathlib import Path
from zooserve_observability.line_files import RotatedFile
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
lines = RotatedFile(Path(sys.argv[1]), 2**20)
lines.append(b'{"number": 1}\\n' * 500)
try:
    lines.append(b'{"number": 2}\\n' * 500)  # the first 3,000 bytes find room
except OSError as exc:
    print(type(exc).__name__)
"""


def test_lines_that_do_not_all_fit_on_the_disk_leave_no_trace(file: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout == "OSError\n"
    assert lines_of(file) == [{"number": 1}] * 500


def test_a_full_disk_is_counted_and_told_once_a_minute(
    tmp_path: Path, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    log = AccessLog(LineStream(Path("/dev/full")), LogMetrics(registry))
    with caplog.at_level(logging.WARNING), log.writing():
        for _ in range(50):
            log.put(line())
    assert lost(registry) == 50
    (warning,) = caplog.messages
    assert "No space left on device" in warning


def test_a_folder_that_cannot_be_made_is_counted(tmp_path: Path, registry: CollectorRegistry) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    log = log_to(tmp_path / "logs" / "access.jsonl", registry)
    with log.writing():
        log.put(line())
    assert lost(registry) == 1


def test_a_folder_that_was_removed_is_made_again(file: Path, registry: CollectorRegistry) -> None:
    lines = RotatedFile(file, MAX_BYTES)
    lines.append(b'{"number": 1}\n')
    for path in file.parent.iterdir():
        path.unlink()
    file.parent.rmdir()
    lines.append(b'{"number": 2}\n')
    assert lines_of(file) == [{"number": 2}]


def test_lines_beyond_what_may_wait_are_dropped_and_counted(
    file: Path, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_to(file, registry, most=3)
    for number in range(10):
        log.put(line(f"req_{number}"))
    assert lost(registry) == 7
    assert len(caplog.messages) == 1
    with log.writing():
        pass
    assert [told["request_id"] for told in lines_of(file)] == ["req_0", "req_1", "req_2"]


def _until_the_end(reader: int) -> list[bytes]:
    with os.fdopen(reader, "rb") as pipe:
        return list(iter(pipe.readline, b"end\n"))


def test_nobody_waits_for_a_pipe_that_nobody_reads(registry: CollectorRegistry) -> None:
    reader, own = os.pipe()
    log = AccessLog(LineStream(Path(f"/proc/self/fd/{own}")), LogMetrics(registry), most=1000)
    read: list[bytes] = []
    slow = threading.Thread(target=lambda: read.extend(_until_the_end(reader)))
    with log.writing():
        for number in range(10_000):
            log.put(line(f"req_{number}"))
        # What may wait, and what the pipe and one batch hold at the most.
        assert lost(registry) >= 10_000 - 1000 - 65_536 / 300 - 4096 / 300
        slow.start()
    os.write(own, b"end\n")
    slow.join()
    os.close(own)
    told = [json.loads(each)["request_id"] for each in read]
    assert len(told) + lost(registry) == 10_000
    assert told == sorted(told, key=lambda request_id: int(request_id.removeprefix("req_")))


def test_several_replicas_write_whole_lines_into_one_pipe(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom zooserve_observability.line_files import LineStream\n"
        "lines = LineStream(Path(f'/proc/{sys.argv[1]}/fd/{sys.argv[2]}'))\n"
        "line = b'{\"a\": \"' + sys.argv[3].encode() * 1300 + b'\"}\\n'\n"
        "for _ in range(500): lines.append(line * (lines.most_bytes // len(line)))\n"
    )
    reader, own = os.pipe()
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(os.getpid()), str(own), name]) for name in ("x", "y")
    ]
    ended = threading.Thread(target=lambda: ([each.wait(60) for each in writers], os.close(own)))
    ended.start()
    with os.fdopen(reader, "rb") as pipe:
        told = [json.loads(each)["a"] for each in pipe]
    ended.join()
    assert sorted(told) == ["x" * 1300] * 1500 + ["y" * 1300] * 1500


def test_the_settings_say_whether_and_where(tmp_path: Path, registry: CollectorRegistry) -> None:
    metrics = LogMetrics(registry)
    assert AccessLog.by(Settings(access_log=AccessLogSettings(enabled=False)), metrics) is None
    settings = Settings(state_dir=tmp_path)
    log = AccessLog.by(settings, metrics)
    assert log is not None
    with log.writing():
        log.put(line())
    assert len(lines_of(tmp_path / "logs" / "access.jsonl")) == 1
    elsewhere = settings.model_copy(update={"access_log": AccessLogSettings(folder=tmp_path / "else")})
    assert elsewhere.access_log_file == tmp_path / "else" / "access.jsonl"
    stream = tmp_path / "out"
    stream.touch()
    log = AccessLog.by(Settings(access_log=AccessLogSettings(to="stdout", stdout=stream)), metrics)
    assert log is not None
    with log.writing():
        log.put(line())
    assert len(lines_of(stream)) == 1


def test_lost_lines_stand_at_0_from_the_start(registry: CollectorRegistry) -> None:
    LogMetrics(registry)
    assert b'zooserve_log_lines_dropped_total{log="access"} 0.0' in generate_latest(registry)


def test_a_line_that_json_has_no_room_for_is_lost_alone(
    file: Path, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_to(file, registry)
    with log.writing():
        log.put(line("too_much", output_tokens=10**30))
        log.put(line("next"))
    assert [told["request_id"] for told in lines_of(file)] == ["next"]
    assert lost(registry) == 1
    assert len(caplog.messages) == 1


def test_lines_that_nobody_took_before_the_end_are_counted(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zooserve_observability.access_log._LAST_S", 0.05)
    reader, own = os.pipe()
    log = AccessLog(LineStream(Path(f"/proc/self/fd/{own}")), LogMetrics(registry))
    with log.writing():
        for number in range(1000):
            log.put(line(f"req_{number}"))
        while select.select([], [own], [], 0)[1]:  # until the pipe is full
            pass
    counted = lost(registry)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read1(2**20)
    os.close(own)
    assert told.count(b"\n") + counted == 1000
