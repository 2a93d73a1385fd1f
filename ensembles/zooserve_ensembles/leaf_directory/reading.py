"""A leaf's model directory as it lies on disk: config.pbtxt, 1/model.yaml, release.yaml, launch.sh, 1/model.py."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from zooserve.catalogue import line_of
from zooserve.leaf.llama import EngineSettings
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.reading import read_config
from zooserve_ensembles.checking.repository import Config, Source

__all__ = ["RULES", "Knobs", "LeafDirectory", "leaf_folders", "read_leaf_directory"]

NONE = Rule("no-leaf-directory", Severity.ERROR, "No folder with a config.pbtxt and a 1/model.yaml is there")
YAML_SYNTAX = Rule("yaml-syntax", Severity.ERROR, "A YAML file cannot be read, or is no mapping")

RULES = (NONE, YAML_SYNTAX)

_DEEPEST = 4
"""Levels in which models are looked for, the given folder the first."""


@dataclass(frozen=True)
class Knobs:
    """A YAML file with its lines; empty where the file is not there."""

    file: Path
    values: Mapping[str, Any] = field(default_factory=dict)

    def place(self, *path: str) -> Place:
        """Where the deepest part of `path` that is there stands."""
        return Place(self.file, line_of(self.values, path) if path else 1)

    def get(self, *path: str) -> Any:
        """The value at `path`, None where it is not there."""
        node: Any = self.values
        for part in path:
            if not isinstance(node, Mapping) or part not in node:
                return None
            node = node[part]
        return node

    def has(self, *path: str) -> bool:
        """Whether there is a key at `path`, whatever its value."""
        *before, last = path
        node = self.get(*before) if before else self.values
        return isinstance(node, Mapping) and last in node


@dataclass(frozen=True)
class LeafDirectory:
    """What a folder says of the leaf it makes."""

    folder: Path
    config: Config
    source: Source
    knobs: Knobs
    """1/model.yaml: the wrapper's keys under `triton_config`, the engine's everywhere else."""
    declared: Knobs
    """release.yaml: of which release wrapper and library are."""
    launch: Source | None = None
    launch_text: str = ""
    wrapper_code: str | None = None
    """1/model.py, where it was put in place already."""

    @property
    def is_embedded(self) -> bool:
        """Whether this is the embedded leaf's own directory, whose model.yaml has other keys."""
        return bool(self.knobs.values) and set(self.knobs.values) <= set(EngineSettings.model_fields)

    @property
    def instances(self) -> int:
        """How many instances Triton makes of it."""
        return sum(group.count or 1 for group in self.config.instance_group) or 1

    @property
    def world_size(self) -> int | None:
        """GPUs of one instance; None where the file says it in no whole numbers."""
        sizes = [self._size(name) for name in ("tensor", "pipeline", "context")]
        return None if None in sizes else sizes[0] * sizes[1] * sizes[2]  # type: ignore[operator]

    def _size(self, kind: str) -> int | None:
        value = self.knobs.get(f"{kind}_parallel_size")
        if value is None:
            return 1
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def leaf_folders(root: Path) -> Iterator[Path]:
    """The model directories at `root` or below it."""
    found = (file for depth in range(_DEEPEST) for file in root.glob("*/" * depth + "config.pbtxt"))
    yield from sorted(file.parent for file in found if (file.parent / "1" / "model.yaml").is_file())


def read_leaf_directory(folder: Path, launch: Path | None = None) -> tuple[LeafDirectory | None, list[Finding]]:
    """What the files say, and a finding for each that cannot be read; None if an essential one cannot."""
    config, source, findings = read_config(folder / "config.pbtxt")
    knobs, faults = _read_yaml(folder / "1" / "model.yaml")
    declared, more = _read_yaml(folder / "release.yaml")
    findings += faults + more
    if config is None or faults:
        return None, findings
    script = launch or folder / "launch.sh"
    text = _text(script)
    return LeafDirectory(
        folder,
        config,
        source,
        knobs,
        declared,
        launch=None if text is None else Source(script),
        launch_text=text or "",
        wrapper_code=_text(folder / "1" / "model.py"),
    ), findings


def _read_yaml(file: Path) -> tuple[Knobs, list[Finding]]:
    text = _text(file)
    if text is None:
        return Knobs(file), []
    try:
        document = YAML(typ="rt").load(text)
    except YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        return Knobs(file), [YAML_SYNTAX.at(Place(file, line), str(getattr(exc, "problem", None) or exc))]
    if not isinstance(document, Mapping):
        return Knobs(file), [YAML_SYNTAX.at(Place(file, 1), "it must be a mapping of keys to values")]
    return Knobs(file, document), []


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
