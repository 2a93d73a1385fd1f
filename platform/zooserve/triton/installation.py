"""The real tritonserver, as the `nvidia-pytriton` wheel carries it, laid out so that it can run here.

Measured for 2.51.0: the Python stub needs the wheel's own libraries and libpython on LD_LIBRARY_PATH even without a
GPU, finds the environment's packages through VIRTUAL_ENV and PATH, and ignores PYTHONPATH.
"""

import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from zooserve.errors import MissingPart
from zooserve.weights.disk import translated_disk_errors

__all__ = ["Installation", "find_installation", "find_libpython", "find_stub"]

_WHEEL = "nvidia-pytriton"
_BACKENDS_BYTES = 3_000_000
_NO_CACHES = shutil.ignore_patterns("__pycache__")


@dataclass(frozen=True)
class Installation:
    """A tritonserver binary, the backend folder laid out for it, and the environment it starts in."""

    binary: Path
    backends: Path
    caches: Path
    environment: dict[str, str]


def find_installation(cache_dir: Path, own_backends: Path) -> Installation:
    """Locate the wheel's binary and lay out the backend folder under `cache_dir`.

    `own_backends` holds our Python-based backends, one folder each. Raises MissingPart if the wheel, its stub for
    this Python, or libpython is not there.
    """
    root = _wheel_root()
    backends = _lay_out_backends(root, cache_dir / "backends", own_backends)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": _library_path(root.parent.parent / "nvidia_pytriton.libs", find_libpython().parent),
        "PATH": f"{Path(sys.prefix) / 'bin'}:{os.environ.get('PATH', '')}",
        "VIRTUAL_ENV": sys.prefix,
        # libgomp's default spinning collapses llama.cpp to a few tokens/s beside a busy neighbour.
        "GOMP_SPINCOUNT": "100",
    }
    return Installation(root / "bin" / "tritonserver", backends, root / "caches", environment)


def _library_path(*own: Path) -> str:
    """These folders, then those that the caller asked for; an empty entry would mean the current folder."""
    inherited = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return ":".join([*map(str, own), *filter(None, inherited)])


def _wheel_root() -> Path:
    try:
        wheel = distribution(_WHEEL)
    except PackageNotFoundError as exc:
        raise MissingPart("nvidia-pytriton is not installed: pip install 'zooserve[platform]'") from exc
    root = Path(str(wheel.locate_file("pytriton/tritonserver")))
    if not (root / "bin" / "tritonserver").is_file():
        raise MissingPart(f"{root} holds no tritonserver: reinstall nvidia-pytriton 0.7.0")
    return root


def find_libpython() -> Path:
    """The shared library of the running Python. Raises MissingPart if there is none."""
    name = f"libpython{_python_version()}.so.1.0"
    folders = [Path(sys.base_prefix) / "lib", Path(str(sysconfig.get_config_var("LIBDIR")))]
    multiarch = sysconfig.get_config_var("MULTIARCH")
    if multiarch:
        folders += [Path("/usr/lib") / multiarch, Path("/lib") / multiarch]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise MissingPart(
        f"no {name} in {', '.join(map(str, dict.fromkeys(folders)))}: Triton's Python backend needs a shared libpython "
        f"(Debian, Ubuntu: apt-get install libpython{_python_version()}; uv: uv python install {_python_version()})"
    )


def find_stub() -> Path:
    """The wheel's Python stub for the running Python. Raises MissingPart if there is none."""
    stub = _wheel_root() / "python_backend_stubs" / _python_version() / "triton_python_backend_stub"
    if not stub.is_file():
        raise MissingPart(f"nvidia-pytriton has no Python stub for {_python_version()}: use Python 3.11 or 3.12")
    return stub


def _python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _lay_out_backends(root: Path, target: Path, own: Path) -> Path:
    """A folder named by what it holds, made once and never written to again.

    Running servers share it and have its libraries mapped: copied over in place, every one of them ended with signal 11
    at its next page fault.
    """
    sources = [backend for backend in sorted(own.iterdir()) if (backend / "model.py").is_file()]
    finished = target / f"{_python_version()}-{_fingerprint(root, sources)}"
    if finished.is_dir():
        return finished
    with translated_disk_errors(target, _BACKENDS_BYTES), _scratch_in(target) as scratch:
        made = Path(scratch) / "backends"
        shutil.copytree(root / "backends" / "python", made / "python")
        stub = Path(shutil.copy(find_stub(), made / "python" / "triton_python_backend_stub"))
        stub.chmod(0o755)
        for backend in sources:
            shutil.copytree(backend, made / backend.name, ignore=_NO_CACHES)
        with suppress(OSError):  # another start was quicker
            made.rename(finished)
    return finished


def _scratch_in(folder: Path) -> "tempfile.TemporaryDirectory[str]":
    folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=folder, prefix=".new-")


def _fingerprint(root: Path, sources: Iterable[Path]) -> str:
    wheel: str = distribution(_WHEEL).version
    digest = hashlib.sha256(f"{root}\0{wheel}".encode())
    for backend in sources:
        for file in sorted(backend.rglob("*.py")):
            digest.update(f"{file.relative_to(backend.parent)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]
