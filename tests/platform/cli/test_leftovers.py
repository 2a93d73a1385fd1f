import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from zooserve.errors import SetupError
from zooserve.processes import state
from zooserve.processes.state import StateFolder
from zooserve_cli.leftovers import clear, make_private, remove_sockets


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateFolder]:
    temporary = Path("/tmp") / f"zt-{os.getpid()}"  # short enough for sockets
    temporary.mkdir()
    monkeypatch.setattr(state.tempfile, "gettempdir", lambda: str(temporary))
    folder = StateFolder(tmp_path / "state")
    folder.create()
    yield folder
    for path in temporary.iterdir():
        path.unlink() if path.is_symlink() else path.rmdir()
    temporary.rmdir()


def ray_log(folder: StateFolder) -> Path:
    make_private(folder.sockets)
    logs = folder.sockets / "r" / "session_2026" / "logs"
    logs.mkdir(parents=True)
    (logs / "raylet.out").write_text("it ran")
    return logs


def test_sockets_go_and_rays_logs_stay(folder: StateFolder) -> None:
    ray_log(folder)
    remove_sockets(folder)
    assert not folder.sockets.exists()
    assert (folder.logs / "ray" / "raylet.out").read_text() == "it ran"


def test_a_log_that_cannot_be_copied_keeps_no_socket_alive(folder: StateFolder) -> None:
    (ray_log(folder) / "dangling").symlink_to(folder.root / "nowhere")
    remove_sockets(folder)
    assert not folder.sockets.exists()
    assert (folder.logs / "ray" / "raylet.out").read_text() == "it ran"


def test_a_sockets_folder_of_somebody_else_is_not_touched(folder: StateFolder, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs" / "r" / "session_2026" / "logs"
    theirs.mkdir(parents=True)
    (theirs / "secret").write_text("theirs")
    folder.sockets.symlink_to(tmp_path / "theirs")
    with pytest.raises(SetupError, match="belongs to somebody else"):
        clear(folder)
    assert (theirs / "secret").exists()
    assert not (folder.logs / "ray").exists()


def test_counts_of_the_last_run_are_cleared(folder: StateFolder) -> None:
    (folder.metrics / "counter_1.db").touch()
    clear(folder)
    assert list(folder.metrics.iterdir()) == []
