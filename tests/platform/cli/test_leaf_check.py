"""`zooserve leaf check DIR`, as somebody meets it who brings a model directory."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from zooserve_cli.main import app

ROOT = Path(__file__).parents[3]
OURS = ROOT / "model_repository" / "trtllm"


def check(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["leaf", "check", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model directory with `decoupled` in the wrong scope."""
    made = tmp_path / "tensorrt_llm"
    shutil.copytree(OURS / "llama_8b" / "tensorrt_llm", made)
    file = made / "1" / "model.yaml"
    file.write_text("decoupled: true\n" + file.read_text())
    return made


def test_every_directory_of_ours_is_sound() -> None:
    done = check(OURS)
    assert (done.exit_code, done.stdout) == (0, "8 model directories: no faults\n")


def test_the_embedded_leafs_is_too() -> None:
    done = check(ROOT / "model_repository" / "leaf")
    assert (done.exit_code, done.stdout) == (0, "1 model directory: no faults\n")


def test_a_fault_is_a_line_that_an_editor_can_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    done = check("tensorrt_llm")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "tensorrt_llm/1/model.yaml:1: [decoupled-at-top-level] move `decoupled` under triton_config",
        "1 model directory: 1 error",
    ]


def test_json_holds_the_same(folder: Path) -> None:
    done = check(folder, "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == 1
    assert told["summary"] == "1 model directory: 1 error"
    (finding,) = told["findings"]
    assert (finding["rule"], finding["line"]) == ("decoupled-at-top-level", 1)


def test_a_launch_script_that_is_not_there_is_a_wrong_usage(folder: Path) -> None:
    done = check(folder, "--launch", folder / "nowhere.sh")
    assert done.exit_code == 2
    assert "is not there" in done.stderr


def test_a_release_that_nobody_recorded_is_a_wrong_usage(folder: Path) -> None:
    done = check(folder, "--release", "0.1")
    assert done.exit_code == 2
    assert "known: 1.2.1" in done.stderr


def test_a_target_of_neither_kind_is_a_wrong_usage() -> None:
    done = check("model_repository/nowhere")
    assert done.exit_code == 2
    assert "neither a folder nor" in done.stderr
