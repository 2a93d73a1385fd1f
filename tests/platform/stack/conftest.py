"""Copies of the committed stack in which single files can be changed: everything else is linked."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_COPIED = ("docker-compose.yml", ".env.example")
_LINKED = ("model_repository", "router", "ensembles", "platform", "observability", "zoo.yaml", "weights.lock")


@dataclass(frozen=True)
class Copied:
    """A folder with all that the compose file names."""

    root: Path

    def own(self, relative: str) -> Path:
        """A path of the copy that can be written: links on the way to it become folders of links."""
        path = self.root
        for part in Path(relative).parts:
            path = path / part
            if not path.is_symlink():
                continue
            target = path.resolve()
            path.unlink()
            if target.is_dir():
                path.mkdir()
                for inner in target.iterdir():
                    (path / inner.name).symlink_to(inner)
            else:
                shutil.copy(target, path)
        return path

    def change(self, relative: str, old: str, new: str) -> None:
        """Replace the first `old` in a file."""
        path = self.own(relative)
        text = path.read_text()
        assert old in text, f"{relative} has no {old!r} any more: mend the test"
        path.write_text(text.replace(old, new, 1))

    def line_of(self, relative: str, text: str) -> int:
        """The line at which a text begins."""
        content = (self.root / relative).read_text()
        assert text in content, f"{relative} has no {text!r}"
        return content.count("\n", 0, content.index(text)) + 1


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copied:
    """A copy of the committed stack, the working directory."""
    for entry in (*_LINKED, "pyproject.toml", "README.md", "requirements"):
        (tmp_path / entry).symlink_to(ROOT / entry)
    for name in _COPIED:
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return Copied(tmp_path)
