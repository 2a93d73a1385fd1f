"""Each case in a Python of its own: what the kernel is told holds for a whole process."""

import signal
import subprocess
import sys
from pathlib import Path

from zooserve.processes.identity import Process, find, is_alive


def run(program: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def told(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wait_for_the_end_of(process: Process) -> None:
    """Until the kernel has ended it; the test's own time limit is the bound."""
    while is_alive(process):
        pass


CHILD_OF_KILLED = """
import sys
from pathlib import Path
from zooserve.processes.child import Child
child = Child("sleeper", Path("{folder}") / "sleeper.log")
child.start([sys.executable, "-c", "import sys, time; time.sleep(600)"], {{}})
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = run(CHILD_OF_KILLED.format(folder=tmp_path))
    child = find(int(told(parent)))
    assert child is not None
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    wait_for_the_end_of(child)


def test_an_orphan_comes_to_the_supervisor_and_is_collected() -> None:
    program = """
import os, subprocess, sys
from pathlib import Path
from zooserve.processes.kinship import adopt_orphans, collect_zombies
adopt_orphans()
inner = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid)"
with subprocess.Popen([sys.executable, "-c", inner], stdout=subprocess.PIPE, text=True) as middle:
    pid = int(middle.stdout.readline())
print(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()), flush=True)
os.kill(pid, 9)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
collect_zombies(own=set())
print(Path(f"/proc/{pid}").exists(), flush=True)
"""
    supervisor = run(program)
    output, _ = supervisor.communicate()
    assert output.split() == ["True", "False"]


def test_children_of_others_are_not_collected() -> None:
    program = """
import os, subprocess, sys
from zooserve.processes.kinship import collect_zombies
child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
collect_zombies(own={child.pid})
print(child.wait(), flush=True)
"""
    output, _ = run(program).communicate()
    assert output.strip() == "7"
