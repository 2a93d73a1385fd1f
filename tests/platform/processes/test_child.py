import os
import sys
from pathlib import Path

import pytest

from zooserve.processes import child
from zooserve.processes.child import Child


def ran(log_file: Path, text: str) -> None:
    process = Child("toy", log_file)
    process.start([sys.executable, "-c", f"print({text!r})"], os.environ)
    while process.exit_code is None:
        os.sched_yield()
    assert process.exit_code == 0


def test_what_a_child_says_is_added_to_its_log(tmp_path: Path) -> None:
    log = tmp_path / "toy.log"
    ran(log, "first")
    ran(log, "second")
    assert log.read_text() == "first\nsecond\n"


def test_a_log_that_has_grown_long_is_set_aside_before_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_LOG_BYTES", 3)
    log = tmp_path / "toy.log"
    for text in ("first", "second", "third"):
        ran(log, text)
    assert log.read_text() == "third\n"
    assert (tmp_path / "toy.log.1").read_text() == "second\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy.cwd", "toy.log", "toy.log.1"]
