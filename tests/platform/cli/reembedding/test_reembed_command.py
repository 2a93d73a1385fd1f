"""The command as it is typed: what it leaves behind, what it refuses, how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from zooserve.errors import JobRefused
from zooserve_cli.main import app
from zooserve_cli.reembedding.rollback import roll_back
from zooserve_cli.reembedding.store import Store

# A signal comes while a library, which has put a handler of its own in the place of ours, starts in C.
ENDS = """
import os, signal, sys, threading, time
from zooserve_cli.reembedding.endings import Left, end_in_order, signals_kept_from_threads, signals_taken_aside

end_in_order()
with signals_kept_from_threads():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
reached = []
try:
    with signals_taken_aside():
        signal.signal(signal.SIGTERM, lambda number, frame: (print("dump"), os._exit(1)))
        for number in map(int, sys.argv[2:]):
            os.kill(os.getpid(), number)
        if sys.argv[1] == "deaf":
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGURG,))
            time.sleep(60)
        elif sys.argv[1] == "swallowed":
            try:
                threading.Event().wait(5)
            except KeyboardInterrupt:
                pass
        else:
            threading.Event().wait(5)
        reached.append("end")
except Left as left:
    print(left.exit_code, *reached)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0)
print("went on")
"""


class Command:
    """`zooserve reembed docs`, with a platform that is a stand-in."""

    def __init__(self, bench: Any, router: Any) -> None:
        self.bench = bench
        self.router = router

    def __call__(self, *more: str, store: bool = True) -> Result:
        """Run it in this process."""
        where = ["--store", self.bench.address.folder] if store else []
        return CliRunner(env={"ZOOSERVE_STATE_DIR": str(self.bench.state)}).invoke(
            app, ["reembed", "docs", *where, "--router", self.router.url, *more]
        )


@pytest.fixture
def command(bench: Any, router: Any, monkeypatch: pytest.MonkeyPatch) -> Command:
    # Signal handlers are the whole process's, and this one is pytest's.
    monkeypatch.setattr("zooserve_cli.reembedding.endings.end_in_order", lambda: None)
    # Nor could its niceness be taken back.
    monkeypatch.setattr("zooserve_cli.reembed._stand_back", lambda niceness: None)
    return Command(bench, router)


def files(root: Path) -> dict[Path, tuple[bytes, int] | None]:
    """Everything below, with contents and times."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def test_a_dry_run_says_what_would_be_done_and_leaves_no_trace(command, payloads, tmp_path: Path) -> None:
    command.bench.fill(payloads)
    before = files(tmp_path)
    done = command("--to", "embed", "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["outcome"], said["rows"], said["read from"]) == ("nothing was done", 40, "docs--old")
    assert (said["alias leads to"], said["target is there already"]) == ("docs--old", False)
    assert files(tmp_path) == before


def test_a_dry_run_of_files_makes_no_store(command, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}\n')
    before = files(tmp_path)
    done = command("--from", str(tmp_path / "rows.jsonl"), "--to", "embed", "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 1
    assert files(tmp_path) == before


def test_a_dry_run_that_is_refused_leaves_no_trace(command, tmp_path: Path) -> None:
    before = files(tmp_path)
    assert command("--to", "embed", "--dry-run").exit_code == 1
    assert files(tmp_path) == before


def test_a_rollback_that_is_dry_switches_nothing(command, payloads, tmp_path: Path) -> None:
    command.bench.fill(payloads)
    command.bench.run()
    before = files(tmp_path)
    done = command("--rollback", "--dry-run", "--json")
    assert json.loads(done.stdout)["restored"] == "docs--old"
    assert json.loads(done.stdout)["outcome"] == "nothing was done"
    assert files(tmp_path) == before


@pytest.mark.parametrize("more", [["--to", "embed"], ["--restart"], ["--from", "x"], ["--alias", "y"]])
def test_a_rollback_is_asked_alone(command, payloads, more: list[str]) -> None:
    command.bench.fill(payloads)
    done = command("--rollback", *more)
    assert done.exit_code == 2
    assert "asked alone" in done.output


@pytest.mark.parametrize("more", [["--rollback"], ["--to", "embed", "--restart"], ["--to", "embed"]])
def test_while_a_job_runs_no_other_touches_it(command, payloads, more: list[str]) -> None:
    command.bench.fill(payloads)
    command.bench.run()
    with command.bench.folder().held():
        done = command(*more)
    assert isinstance(done.exception, JobRefused)
    assert "Another process works on this job" in str(done.exception)
    assert command.bench.aliases()["docs"] != "docs--old"


def test_a_rollback_after_a_rollback_is_refused_in_words(command, payloads) -> None:
    command.bench.fill(payloads)
    command.bench.run()
    assert command("--rollback").exit_code == 0
    twice = command("--rollback")
    assert "nothing to go back to" in str(twice.exception)
    with Store.opened(command.bench.address) as store, pytest.raises(JobRefused):
        roll_back(store, "docs")


@pytest.mark.parametrize("how", ["raised", "swallowed"])
@pytest.mark.parametrize(
    ("numbers", "code"), [(["15"], "143"), (["2"], "130"), (["2", "2"], "130"), (["1", "15", "2"], None)]
)
def test_a_signal_while_a_library_starts_ends_in_order_once_with_its_own_exit_code(
    how: str, numbers: list[str], code: str | None
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS, how, *numbers], capture_output=True, text=True, timeout=60, check=False
    )
    first, rest = done.stdout.splitlines()
    assert rest == "went on"
    assert first.split()[0] in ({code} if code else {"129", "130", "143"})
    assert (first.split()[1:] == ["end"]) == (how == "swallowed")


def test_a_library_that_never_comes_back_from_c_keeps_nobody() -> None:
    impatient = "from zooserve_cli.reembedding import endings\nendings._PATIENCE_S = 0.2\n"
    command = [sys.executable, "-c", impatient + ENDS, "deaf", "15"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 143
    assert "Interrupted, at once" in done.stderr


@pytest.mark.skipif(os.getpriority(os.PRIO_PROCESS, 0) > 0, reason="these tests stand back themselves")
@pytest.mark.parametrize(("before", "asked", "after"), [(0, 10, 10), (15, 10, 15), (3, 0, 3)])
def test_the_command_and_what_it_starts_stand_back_and_never_step_forward(before: int, asked: int, after: int) -> None:
    code = (
        "import os, subprocess, sys\n"
        f"os.setpriority(os.PRIO_PROCESS, 0, {before})\n"
        "from zooserve_cli.reembed import _stand_back\n"
        f"_stand_back({asked})\n"
        "subprocess.run([sys.executable, '-c', 'import os; print(os.getpriority(os.PRIO_PROCESS, 0))'], check=True)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert int(told.stdout) == after
