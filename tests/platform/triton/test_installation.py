import os
import sys
import sysconfig
from pathlib import Path

import pytest

from zooserve.errors import MissingPart, SetupError
from zooserve.triton import installation
from zooserve.triton.installation import find_installation, find_libpython


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own" / "toy"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text("# a backend\n")
    (folder / "__pycache__").mkdir()
    (tmp_path / "own" / "no_backend").mkdir()
    return tmp_path / "own"


def test_the_wheels_binary_and_our_backends_are_laid_out(tmp_path: Path, own: Path) -> None:
    found = find_installation(tmp_path / "cache", own)
    assert os.access(found.binary, os.X_OK)
    assert os.access(found.backends / "python" / "triton_python_backend_stub", os.X_OK)
    assert (found.backends / "python" / "libtriton_python.so").is_file()
    assert (found.backends / "toy" / "model.py").read_text() == "# a backend\n"
    assert sorted(path.name for path in found.backends.iterdir()) == ["python", "toy"]
    assert not (found.backends / "toy" / "__pycache__").exists()


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, own: Path) -> None:
    (tmp_path / "cache").write_text("a file in the folder's place")
    with pytest.raises(SetupError, match=r"cache/backends cannot be written: Not a directory"):
        find_installation(tmp_path / "cache", own)


def test_what_is_laid_out_is_never_written_to_again(tmp_path: Path, own: Path) -> None:
    """A running server has these files mapped; writing into them would end it."""
    first = find_installation(tmp_path / "cache", own).backends
    library = first / "python" / "libtriton_python.so"
    before = library.stat()
    assert find_installation(tmp_path / "cache", own).backends == first
    assert library.stat() == before


def test_changed_backends_get_a_folder_of_their_own(tmp_path: Path, own: Path) -> None:
    first = find_installation(tmp_path / "cache", own).backends
    (own / "toy" / "model.py").write_text("# another\n")
    second = find_installation(tmp_path / "cache", own).backends
    assert second != first
    assert (first / "toy" / "model.py").read_text() == "# a backend\n"
    assert (second / "toy" / "model.py").read_text() == "# another\n"


def test_nothing_half_made_is_left(tmp_path: Path, own: Path) -> None:
    found = find_installation(tmp_path / "cache", own)
    assert list(found.backends.parent.iterdir()) == [found.backends]


def test_stubs_find_this_environment(tmp_path: Path, own: Path) -> None:
    environment = find_installation(tmp_path / "cache", own).environment
    assert environment["VIRTUAL_ENV"] == sys.prefix
    assert environment["PATH"].split(":")[0] == str(Path(sys.prefix) / "bin")
    assert str(find_libpython().parent) in environment["LD_LIBRARY_PATH"].split(":")


def test_a_python_without_a_shared_library_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: str(tmp_path) if name == "LIBDIR" else None)
    with pytest.raises(MissingPart, match="apt-get install libpython3"):
        find_libpython()


def test_a_missing_wheel_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: Path) -> None:
    def nowhere(name: str) -> None:
        raise installation.PackageNotFoundError(name)

    monkeypatch.setattr(installation, "distribution", nowhere)
    with pytest.raises(MissingPart, match=r"zooserve\[platform\]"):
        find_installation(tmp_path / "cache", own)


def test_libraries_of_the_caller_are_found_after_ours(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/cuda/lib::/opt/other")
    folders = find_installation(tmp_path / "cache", own).environment["LD_LIBRARY_PATH"].split(":")
    assert folders[1:] == [str(find_libpython().parent), "/opt/cuda/lib", "/opt/other"]
