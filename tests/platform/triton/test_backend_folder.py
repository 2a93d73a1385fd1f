"""The backend folder is shared by every server of a machine: laying it out anew must not hurt them."""

import mmap
from pathlib import Path

from zooserve.triton.installation import find_installation

OWN_BACKENDS = Path(__file__).parents[3] / "platform" / "triton" / "backends"


def test_laying_it_out_again_leaves_equal_files_alone(tmp_path) -> None:
    library = find_installation(tmp_path, OWN_BACKENDS).backends / "python" / "libtriton_python.so"
    before = library.stat()
    find_installation(tmp_path, OWN_BACKENDS)
    assert (library.stat().st_ino, library.stat().st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


def test_a_file_that_changed_is_replaced_and_not_written_into(tmp_path) -> None:
    """A server that has the old file mapped keeps reading the old file."""
    library = find_installation(tmp_path, OWN_BACKENDS).backends / "python" / "libtriton_python.so"
    whole = library.read_bytes()
    library.write_bytes(b"old" * 5000)
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        find_installation(tmp_path, OWN_BACKENDS)
        assert mapped[-3:] == b"old"
    assert library.read_bytes() == whole


def test_the_stub_can_be_run_and_nothing_half_written_is_left(tmp_path) -> None:
    backends = find_installation(tmp_path, OWN_BACKENDS).backends
    assert (backends / "python" / "triton_python_backend_stub").stat().st_mode & 0o111
    assert not list(backends.rglob(".*"))
    assert (backends / "onnxruntime" / "model.py").is_file()
