import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from zooserve.errors import AlreadyRunning, SetupError
from zooserve.processes.identity import find
from zooserve.processes.state import StateFolder, unplanned
from zooserve_cli.down import _hold
from zooserve_cli.leftovers import held

ROOT = Path(__file__).parents[3]
_DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


def test_down_waits_as_long_as_the_platform_itself_says(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.create()
    deaf = subprocess.Popen([sys.executable, "-c", _DEAF], stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    deaf.stdout.readline()
    process = find(deaf.pid)
    assert process is not None
    told = {"pid": process.pid, "start_time": process.start_time, "stop_s": 0.2}
    folder.write_state(unplanned("ready").model_copy(update=told))
    done = subprocess.run(
        [sys.executable, "-m", "zooserve_cli", "down"],
        env={**os.environ, "ZOOSERVE_STATE_DIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert deaf.wait(10) == -9
    deaf.stdout.close()


HOLD = """
import sys, time
from pathlib import Path
from zooserve.processes.state import StateFolder
from zooserve_cli.leftovers import held
with held(StateFolder(Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_second_down_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    """The first one is clearing away what was left, and holds the folder meanwhile."""
    folder = StateFolder(tmp_path)
    folder.create()
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        environment = {**os.environ, "ZOOSERVE_STATE_DIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
        down = [sys.executable, "-m", "zooserve_cli", "down"]
        with subprocess.Popen(down, env=environment, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as second:
            assert second.stderr is not None
            assert second.stdout is not None
            assert "Another `zooserve down` is under way" in second.stderr.readline()
            first.communicate("\n", timeout=60)
            assert second.wait(60) == 0, second.stderr.read()
            assert "Nothing runs from" in second.stdout.read()


def test_down_does_not_wait_for_a_platform_that_was_started_meanwhile(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.create()
    with held(folder), ExitStack() as holding:
        folder.write_state(unplanned("ready"))
        with pytest.raises(AlreadyRunning, match="already runs"):
            _hold(folder, holding)


def test_down_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zooserve_cli.down._OTHERS_S", -1.0)
    folder = StateFolder(tmp_path)
    folder.create()
    with held(folder), ExitStack() as holding, pytest.raises(SetupError, match=r"fuser .*lock"):
        _hold(folder, holding)
