"""One page over all processes, whoever of them was killed and whenever: no count is lost, and none counts twice."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from zooserve_observability import replica_files

REPLICA = """
import os, sys
from prometheus_client import CollectorRegistry
from zooserve_observability.metrics import RouterMetrics
metrics = RouterMetrics(CollectorRegistry())
for _ in range(int(sys.argv[1])):
    metrics.ended("embed", "1", "interactive", "ok", 0.03)
with metrics.flying():
    if sys.argv[2] == "stays":
        print("ready", flush=True)
        sys.stdin.read()
    os._exit(9)  # as by kill -9: in flight, and nothing tidied
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a process that counts so many requests, and dies with one in flight once its input ends."""

    def begin(requests: int, *, stays: bool = False) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", REPLICA, str(requests), "stays" if stays else "dies"],
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if stays:
            process.stdout.readline()
        else:
            process.communicate()
        return process

    return begin


def value(page: bytes, series: str) -> float:
    (found,) = re.findall(rf"^{re.escape(series)} (\S+)$", page.decode(), re.MULTILINE)
    return float(found)


def counted(page: bytes) -> tuple[float, float, float]:
    """Requests, and what the histogram says of them."""
    labels = 'class="interactive",model="embed",version="1"'
    return (
        value(page, 'zooserve_requests_total{class="interactive",model="embed",outcome="ok",version="1"}'),
        value(page, f"zooserve_request_duration_seconds_count{{{labels}}}"),
        value(
            page, 'zooserve_request_duration_seconds_bucket{class="interactive",le="0.04",model="embed",version="1"}'
        ),
    )


def test_the_dead_leave_one_file_of_each_kind_and_all_that_they_counted(tmp_path: Path, start: Start) -> None:
    for requests in (3, 4, 5):
        start(requests)
    assert counted(replica_files.page(tmp_path)) == (12, 12, 12)
    assert sorted(file.name for file in tmp_path.glob("*.db")) == ["counter_past.db", "histogram_past.db"]
    start(6)
    assert counted(replica_files.page(tmp_path)) == (18, 18, 18)
    assert counted(replica_files.page(tmp_path)) == (18, 18, 18)
    assert sorted(file.name for file in tmp_path.glob("*.db")) == ["counter_past.db", "histogram_past.db"]


def test_a_living_processes_files_are_left_alone_and_count(tmp_path: Path, start: Start) -> None:
    start(3)
    living = start(4, stays=True)
    page = replica_files.page(tmp_path)
    assert counted(page) == (7, 7, 7)
    assert value(page, "zooserve_requests_in_flight") == 1
    assert (tmp_path / f"counter_{living.pid}.db").exists()
    living.communicate()
    page = replica_files.page(tmp_path)
    assert counted(page) == (7, 7, 7)
    assert b"zooserve_requests_in_flight 1" not in page


def test_a_killed_process_that_nobody_has_collected_yet_is_dead(tmp_path: Path, start: Start) -> None:
    killed = start(4, stays=True)
    killed.kill()
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is a zombie
    page = replica_files.page(tmp_path)
    assert counted(page) == (4, 4, 4)
    assert b"zooserve_requests_in_flight 1" not in page
    killed.communicate()


@pytest.mark.parametrize("step", range(6))
def test_a_fold_that_is_killed_at_any_step_is_finished_by_the_next_reader(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    start(3)
    assert counted(replica_files.page(tmp_path)) == (3, 3, 3)
    start(4)
    steps = iter(range(step + 1))

    def killed_at(act: Callable[..., object]) -> Callable[..., object]:
        def one_step(*args: object, **options: object) -> object:
            if next(steps, None) is None:
                raise KeyboardInterrupt
            return act(*args, **options)

        return one_step

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed_at(Path.rename))
        patched.setattr(Path, "unlink", killed_at(Path.unlink))
        patched.setattr(shutil, "rmtree", killed_at(shutil.rmtree))
        with pytest.raises(KeyboardInterrupt):
            replica_files.page(tmp_path)
    assert counted(replica_files.page(tmp_path)) == (7, 7, 7)
    assert sorted(file.name for file in tmp_path.glob("*.db")) == ["counter_past.db", "histogram_past.db"]
    assert not (tmp_path / "folded").exists()


def test_the_empty_file_of_a_process_killed_at_once_is_taken_away(tmp_path: Path, start: Start) -> None:
    start(2)
    (tmp_path / f"counter_{start(0).pid}.db").write_bytes(b"")
    assert counted(replica_files.page(tmp_path)) == (2, 2, 2)


def test_several_readers_at_once_see_every_count_once(tmp_path: Path, start: Start) -> None:
    reader = "import sys; from pathlib import Path; from zooserve_observability import replica_files\n"
    reader += "for _ in range(10): sys.stdout.write(replica_files.page(Path(sys.argv[1])).decode() + '---')"
    for _ in range(4):
        start(5)
    readers = [
        subprocess.Popen([sys.executable, "-c", reader, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    pages = [page for each in readers for page in each.communicate()[0].split("---") if page]
    assert len(pages) == 30
    assert {counted(page.encode()) for page in pages} == {(20, 20, 20)}


GROWING = """
import sys
from prometheus_client import CollectorRegistry
from zooserve_observability.metrics import RouterMetrics
metrics = RouterMetrics(CollectorRegistry())
print("ready", flush=True)
sys.stdin.readline()
for model in range(40):
    metrics.ended(f"model-{model}", "1", "interactive", "ok", 0.03)
print("counted", flush=True)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 4 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 4096)


def growing(folder: Path) -> "subprocess.Popen[str]":
    """A process that makes its metrics, and counts for forty models once it is told to."""
    return subprocess.Popen(
        [sys.executable, "-c", GROWING],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_disk_that_fills_up_ends_no_process_that_counts_something_new_and_no_reader(small_disk: Path) -> None:
    process = growing(small_disk)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    fill(small_disk / "ballast")
    assert process.communicate("go\n")[0] == "counted\n"
    assert process.returncode == 0
    page = replica_files.page(small_disk)  # of a process that is gone, with no room to fold its counters
    assert page.count(b"zooserve_requests_total{") == 40
    (small_disk / "ballast").unlink()
    assert replica_files.page(small_disk) == page
    assert sorted(file.name for file in small_disk.glob("*.db")) == ["counter_past.db", "histogram_past.db"]


def test_a_process_that_starts_on_a_full_disk_says_that_it_is_not_counted(small_disk: Path) -> None:
    fill(small_disk / "ballast")
    process = growing(small_disk)
    told, warned = process.communicate("go\n")
    assert (told, process.returncode) == ("ready\ncounted\n", 0)
    assert "what this process counts: it is left out (No space left on device)" in warned
