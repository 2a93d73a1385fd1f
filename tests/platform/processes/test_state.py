import os
from pathlib import Path

import pytest

from zooserve.errors import SetupError
from zooserve.processes import state
from zooserve.processes.files import write_atomically
from zooserve.processes.shared_memory import prefix_of, regions, remove_regions
from zooserve.processes.state import StateFolder, unplanned


def test_a_platform_runs_as_long_as_its_supervisor(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.create()
    mine = unplanned("ready")
    folder.write_state(mine)
    read = folder.read_state()
    assert read == mine
    assert mine.is_running
    assert not mine.model_copy(update={"start_time": mine.start_time - 1}).is_running
    assert not mine.model_copy(update={"boot_id": "another"}).is_running


def test_nobody_else_may_look_into_a_state_folder(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "new")
    folder.create()
    for made in (folder.root, folder.logs, folder.run, folder.metrics):
        assert made.stat().st_mode & 0o777 == 0o700


def test_a_root_that_was_there_before_keeps_its_mode_and_what_is_ours_is_closed(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.run.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    folder.create()
    assert folder.root.stat().st_mode & 0o777 == 0o755
    assert folder.run.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", ["", "{}", "null"])
def test_an_unreadable_state_is_none(tmp_path: Path, content: str) -> None:
    folder = StateFolder(tmp_path)
    folder.create()
    (folder.run / "platform.json").write_text(content)
    assert folder.read_state() is None


def test_the_sockets_folder_is_short_however_long_the_state_folder_is(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 200)
    assert len(str(StateFolder(long).sockets)) < 30


def test_a_temporary_folder_too_long_for_sockets_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state.tempfile, "gettempdir", lambda: "/" + "t" * 60)
    with pytest.raises(SetupError, match="TMPDIR"):
        _ = StateFolder(tmp_path).sockets


def test_two_state_folders_share_no_memory_names(tmp_path: Path) -> None:
    assert prefix_of(tmp_path / "a") != prefix_of(tmp_path / "b")


def test_only_regions_of_the_prefix_are_removed(tmp_path: Path) -> None:
    mine, other = prefix_of(tmp_path / "mine"), prefix_of(tmp_path / "other")
    files = [Path("/dev/shm") / f"{prefix}zoo-1-{os.getpid()}" for prefix in (mine, other)]
    for file in files:
        file.touch()
    try:
        assert remove_regions(mine) == [files[0].name]
        assert regions(mine) == []
        assert regions(other) == [files[1].name]
    finally:
        remove_regions(other)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_atomically(file, "old")
    write_atomically(file, "new")
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_atomically(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(file, "\ud800")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
