import os
import subprocess
import sys
from pathlib import Path

from zooserve.processes.identity import find
from zooserve.processes.state import StateFolder, unplanned

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
