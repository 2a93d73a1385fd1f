import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from zooserve.processes.identity import (
    Process,
    age_s,
    command_of,
    descendants,
    end,
    find,
    is_alive,
    process_table,
    send,
)

WAITING = "import sys; sys.stdin.read()"
STUBBORN = (
    "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('set', flush=True); sys.stdin.read()"
)
WITH_CHILD = (
    "import subprocess, sys;"
    "subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()']);"
    "print('set', flush=True); sys.stdin.read()"
)


class Started:
    """Child processes of a test, none of which outlives it."""

    def __init__(self) -> None:
        self.children: list[subprocess.Popen[bytes]] = []

    def __call__(self, program: str) -> Process:
        child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.children.append(child)
        if "print" in program:
            assert child.stdout is not None
            child.stdout.readline()
        process = find(child.pid)
        assert process is not None
        return process


@pytest.fixture
def started() -> Iterator[Started]:
    made = Started()
    yield made
    for child in made.children:
        child.kill()
        child.communicate()


def test_a_process_is_known_by_pid_and_start_time() -> None:
    me = find(os.getpid())
    assert me is not None
    assert is_alive(me)
    assert not is_alive(replace(me, start_time=me.start_time - 1))


def test_the_age_of_a_new_process_is_small_and_grows(started: Started) -> None:
    process = started(WAITING)
    young = age_s(process)
    assert -0.02 <= young < 60
    assert age_s(process) >= young


def test_a_zombie_does_not_count_as_alive(started: Started) -> None:
    process = started(WAITING)
    send(process, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(process)
    assert find(process.pid) is None


def test_a_process_of_another_start_time_is_not_signalled(started: Started) -> None:
    process = started(WAITING)
    assert not send(replace(process, start_time=process.start_time + 1), signal.SIGKILL)
    assert is_alive(process)


def test_signalling_one_that_is_gone_is_no_error(started: Started) -> None:
    process = started(WAITING)
    started.children[0].kill()
    started.children[0].wait()
    assert not send(process, signal.SIGTERM)


def test_the_stubborn_are_killed_once_the_grace_is_over(started: Started) -> None:
    willing, stubborn = started(WAITING), started(STUBBORN)
    assert end([willing, stubborn], grace_s=1) == {willing, stubborn}
    assert [child.wait() for child in started.children] == [-signal.SIGTERM, -signal.SIGKILL]


def test_descendants_reach_down_to_grandchildren(started: Started) -> None:
    parent = started(WITH_CHILD)
    below = descendants([os.getpid()], process_table())
    (child,) = descendants([parent.pid], process_table())
    assert {parent, child} <= below
    assert "stdin.read" in command_of(child.pid)
    end([child], grace_s=5)


def test_the_command_of_nobody_is_empty() -> None:
    assert command_of(2**22) == ""
