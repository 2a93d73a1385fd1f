"""`zooserve ensembles check`, as somebody meets it who brings a repository."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from zooserve_cli.main import app
from zooserve_ensembles.backends import BACKENDS
from zooserve_ensembles.checking import ALL_RULES

ROOT = Path(__file__).parents[3]
MODEL = 'name: "m"\nbackend: "python"\nmax_batch_size: 4\n'


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A repository of one model."""
    folder = tmp_path / "models"
    (folder / "m" / "1").mkdir(parents=True)
    (folder / "m" / "1" / "model.py").write_text("class TritonPythonModel: ...\n")
    (folder / "m" / "config.pbtxt").write_text(MODEL)
    return folder


def check(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["ensembles", "check", *map(str, arguments)])


def test_the_committed_zoo_has_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = check("--strict") if _fetched() else check()
    assert done.exit_code == 0, done.stdout
    assert "ensembles: " in done.stdout.splitlines()[-1]


def _fetched() -> bool:
    return (ROOT / "model_repository" / "zoo" / "embed_encoder" / "1" / "model.onnx").is_file()


def test_a_sound_repository_is_one_line(models: Path) -> None:
    done = check(models)
    assert (done.exit_code, done.stdout) == (0, "1 model, 0 ensembles: no faults\n")


def test_a_fault_is_a_line_that_an_editor_can_open(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models.parent)
    (models / "m" / "config.pbtxt").write_text(MODEL.replace('"m"', '"n"'))
    done = check("models")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[0].startswith("models/m/config.pbtxt:1: [name-mismatch] ")
    assert done.stdout.splitlines()[-1] == "1 model, 0 ensembles: 1 error"


def test_a_warning_fails_only_a_strict_check(models: Path) -> None:
    shutil.copytree(models / "m" / "1", models / "m" / "v2")
    assert check(models).exit_code == 0
    assert check(models, "--strict").exit_code == 1
    assert "1 warning" in check(models).stdout


def test_json_holds_the_same(models: Path) -> None:
    (models / "m" / "config.pbtxt").write_text(MODEL.replace('"m"', '"n"'))
    told = json.loads(check(models, "--json").stdout)
    assert told["summary"] == "1 model, 0 ensembles: 1 error"
    (finding,) = told["findings"]
    assert finding["file"] == str(models / "m" / "config.pbtxt")
    assert (finding["line"], finding["severity"], finding["rule"]) == (1, "error", "name-mismatch")


def test_a_target_decides_what_a_foreign_backend_weighs(models: Path) -> None:
    (models / "m" / "config.pbtxt").write_text(MODEL.replace("python", "tensorrt"))
    (models / "m" / "1" / "model.py").rename(models / "m" / "1" / "model.plan")
    assert check(models).exit_code == 0
    assert "embedded Triton cannot run" in check(models).stdout
    assert check(models, "--target", "embedded").exit_code == 1
    assert "embedded" not in check(models, "--target", "container").stdout


def test_a_folder_that_is_not_there_is_one_finding(tmp_path: Path) -> None:
    done = check(tmp_path / "none")
    assert done.exit_code == 1
    assert "[not-a-repository]" in done.stdout


def test_a_stranger_needs_none_of_our_files(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models)
    assert check(models).exit_code == 0


def test_the_documentation_lists_every_rule_as_it_is() -> None:
    page = (ROOT / "docs" / "checking.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.split("`")[1] in {rule.name for rule in ALL_RULES}] == [
        f"| `{rule.name}` | {rule.severity} | {rule.summary} |" for rule in ALL_RULES
    ]


def test_the_documentation_lists_every_backend_as_it_is() -> None:
    page = (ROOT / "docs" / "checking.md").read_text()
    for backend in BACKENDS.values():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{backend.name}` | "))
        assert all(f"`{name}`" in row for name in (*backend.platforms, *backend.files, *backend.beside.values()))
        assert row.endswith(f"| {backend.serves} | {'yes' if backend.embedded else 'no'} |")
