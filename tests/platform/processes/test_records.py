import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zooserve.processes.identity import find, is_alive
from zooserve.processes.records import ProcessRecords, Record


@pytest.fixture
def records(tmp_path: Path) -> ProcessRecords:
    return ProcessRecords(tmp_path / "processes.json")


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_stock_names_roles(records: ProcessRecords, child: "subprocess.Popen[bytes]") -> None:
    records.take_stock(os.getpid(), {child.pid: "zoo"})
    roles = {record.pid: record.role for record in records.read()}
    assert roles[os.getpid()] == "supervisor"
    assert roles[child.pid] == "zoo"


def test_what_runs_below_a_server_belongs_to_it(records: ProcessRecords, child: "subprocess.Popen[bytes]") -> None:
    records.take_stock(os.getppid(), {os.getpid(): "router"})
    roles = {record.pid: record.role for record in records.read()}
    assert roles[os.getpid()] == "router"
    assert roles[child.pid] == "router child"


def test_an_orphan_that_was_taken_in_is_recorded_too(records: ProcessRecords, child: "subprocess.Popen[bytes]") -> None:
    records.take_stock(os.getpid(), {})
    assert {record.pid: record.role for record in records.read()}[child.pid] == "adopted"


_READS_THEN_STARTS = (
    "import subprocess, sys; sys.stdin.readline();"
    "p = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()']);"
    "print(p.pid, flush=True); p.wait()"
)


def test_an_orphan_keeps_the_role_of_the_server_that_left_it(
    records: ProcessRecords, child: "subprocess.Popen[bytes]"
) -> None:
    above = os.getppid()
    records.take_stock(above, {os.getpid(): "router"})
    records.take_stock(above, {})  # the router is on record no more, what it started still runs
    records.take_stock(above, {})
    assert {record.pid: record.role for record in records.read()}[child.pid] == "router child"


def test_what_an_orphan_starts_belongs_to_the_same_server(records: ProcessRecords) -> None:
    parent = subprocess.Popen([sys.executable, "-c", _READS_THEN_STARTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    above = os.getppid()
    records.take_stock(above, {os.getpid(): "router"})
    parent.stdin.write(b"go\n")
    parent.stdin.flush()
    grandchild = int(parent.stdout.readline())
    records.take_stock(above, {})
    assert {record.pid: record.role for record in records.read()}[grandchild] == "router child"
    parent.communicate()


def test_reaping_ends_the_recorded(records: ProcessRecords, child: "subprocess.Popen[bytes]") -> None:
    process = find(child.pid)
    assert process is not None
    records.write([Record(process.pid, process.start_time, "zoo", "")])
    assert [record.role for record in records.reap(grace_s=5)] == ["zoo"]
    assert not is_alive(process)


def test_reaping_ends_what_runs_below_the_recorded(records: ProcessRecords) -> None:
    program = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()']);"
        "print(p.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    grandchild = find(int(parent.stdout.readline()))
    process = find(parent.pid)
    assert process is not None
    assert grandchild is not None
    records.write([Record(process.pid, process.start_time, "zoo", "")])
    assert len(records.reap(grace_s=5)) == 2
    parent.communicate()
    assert not is_alive(grandchild)


def test_reaping_leaves_a_later_process_of_the_same_pid_alone(
    records: ProcessRecords, child: "subprocess.Popen[bytes]"
) -> None:
    process = find(child.pid)
    assert process is not None
    records.write([Record(process.pid, process.start_time - 1, "zoo", "")])
    assert records.reap(grace_s=5) == []
    assert child.poll() is None


def test_records_of_another_boot_name_nobody(records: ProcessRecords, tmp_path: Path) -> None:
    records.take_stock(os.getpid(), {})
    file = tmp_path / "processes.json"
    file.write_text(file.read_text().replace('"boot_id": "', '"boot_id": "0'))
    assert records.read() == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"boot_id": 1}'])
def test_an_unreadable_file_names_nobody(records: ProcessRecords, tmp_path: Path, content: str) -> None:
    (tmp_path / "processes.json").write_text(content)
    assert records.read() == []


def test_unchanged_records_are_not_written_again(records: ProcessRecords, tmp_path: Path) -> None:
    records.write([])
    (tmp_path / "processes.json").unlink()
    records.write([])
    assert not (tmp_path / "processes.json").exists()
