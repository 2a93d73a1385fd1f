"""A small repository without a fault, to break in one place: a fault's line is the one that says `# here`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from zooserve_ensembles.checking import Report, Severity, Target, check_repository

CODE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"

TOKENIZER = """name: "tokenizer"
backend: "python"
max_batch_size: 8
input [
  { name: "text" data_type: TYPE_STRING dims: [ 1 ] }
]
output [
  { name: "ids" data_type: TYPE_INT64 dims: [ -1 ] },
  { name: "mask" data_type: TYPE_INT64 dims: [ -1 ] }
]
"""

ENCODER = """name: "encoder"
backend: "python"
max_batch_size: 8
input [
  {
    name: "ids"
    data_type: TYPE_INT64
    dims: [ -1 ]
  },
  {
    name: "mask"
    data_type: TYPE_INT64
    dims: [ -1 ]
  }
]
output [
  {
    name: "vector"
    data_type: TYPE_FP32
    dims: [ 4 ]
  }
]
"""

PIPELINE = """name: "pipeline"
platform: "ensemble"
max_batch_size: 8
input [
  {
    name: "text"
    data_type: TYPE_STRING
    dims: [ 1 ]
  }
]
output [
  {
    name: "embedding"
    data_type: TYPE_FP32
    dims: [ 4 ]
  }
]
ensemble_scheduling {
  step [
    {
      model_name: "tokenizer"
      model_version: 1
      input_map { key: "text" value: "text" }
      output_map { key: "ids" value: "ids" }
      output_map { key: "mask" value: "mask" }
    },
    {
      model_name: "encoder"
      model_version: 1
      input_map { key: "ids" value: "ids" }
      input_map { key: "mask" value: "mask" }
      output_map { key: "vector" value: "embedding" }
    }
  ]
}
"""

HERE = "# here"


@dataclass
class Shelf:
    """A repository on disk."""

    root: Path

    def add(self, name: str, config: str | None, *versions: int, code: str = CODE) -> None:
        """A model with a configuration and versions with Python code, or empty ones where `code` is empty."""
        for version in versions or (1,):
            folder = self.root / name / str(version)
            folder.mkdir(parents=True, exist_ok=True)
            if code:
                (folder / "model.py").write_text(code)
        if config is not None:
            (self.root / name).mkdir(exist_ok=True)
            (self.root / name / "config.pbtxt").write_text(config)

    def edit(self, model: str, old: str, new: str, file: str = "config.pbtxt") -> None:
        """Replace the one `old` in a file."""
        path = self.root / model / file
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {path}"
        path.write_text(text.replace(old, new))

    def append(self, model: str, text: str) -> None:
        """Add to a configuration's end."""
        path = self.root / model / "config.pbtxt"
        path.write_text(path.read_text() + text)

    def check(self, target: Target | None = None) -> Report:
        """The report."""
        return check_repository(self.root, target)

    def told(self, target: Target | None = None, *, notes: bool = False) -> list[tuple[str, int, str]]:
        """File, line and rule of every finding, in order."""
        return [
            (str(finding.place.file.relative_to(self.root)), finding.place.line, finding.rule)
            for finding in self.check(target).findings
            if notes or finding.severity is not Severity.NOTE
        ]

    def here(self, rule: str) -> list[tuple[str, int, str]]:
        """What `told` gives if this rule fires once at each line that says so."""
        return sorted(
            (str(file.relative_to(self.root)), number, rule)
            for file in self.root.rglob("*.pbtxt")
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), start=1)
            if HERE in line
        )

    def messages(self) -> str:
        """Everything that is said."""
        return "\n".join(str(finding) for finding in self.check().findings)


@pytest.fixture
def empty(tmp_path: Path) -> Shelf:
    """A repository with nothing in it."""
    root = tmp_path / "models"
    root.mkdir()
    return Shelf(root)


@pytest.fixture
def shelf(empty: Shelf) -> Shelf:
    """A tokenizer, an encoder and the ensemble of both, without a fault."""
    empty.add("tokenizer", TOKENIZER)
    empty.add("encoder", ENCODER)
    empty.add("pipeline", PIPELINE, code="")
    return empty


Mutation = Callable[[Shelf], None]
