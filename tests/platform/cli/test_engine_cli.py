"""`zooserve engine` as a user meets it: what it prints, and its exit codes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from zooserve.errors import EngineRefused
from zooserve_cli.main import app
from zooserve_ensembles.engines.cuda import Cuda
from zooserve_ensembles.engines.identity import Gpu

ROOT = Path(__file__).parents[3]


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cuda, "__init__", lambda self: None)
    monkeypatch.setattr(Cuda, "gpus", lambda self: (Gpu("NVIDIA H200", "9.0"),))
    monkeypatch.setenv("NVIDIA_TRITON_SERVER_VERSION", "26.07")
    monkeypatch.setenv("TRT_VERSION", "10.14.1.48")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The configuration of one encoder of the zoo, with a graph of no account."""
    folder = tmp_path / "zoo" / "embed_encoder"
    (folder / "configs").mkdir(parents=True)
    for name in ("config.pbtxt", "configs/plan.pbtxt"):
        (folder / name).write_bytes((ROOT / "model_repository" / "zoo" / "embed_encoder" / name).read_bytes())
    (folder / "1").mkdir()
    (folder / "1" / "model.onnx").write_bytes(b"a graph")
    return tmp_path / "zoo"


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize("verb", ["check", "use"])
def test_a_zoo_without_plans_is_told_how_to_build_them(repository: Path, verb: str) -> None:
    (repository / "embed_encoder" / "1" / "model.plan").write_bytes(b"of nobody")
    done = CliRunner().invoke(app, ["engine", verb, "--repository", str(repository)])
    assert done.exit_code == 1
    assert "embed_encoder 1 has no plan for this machine (none was built). Build one here:" in done.output
    assert (repository / "embed_encoder" / "1" / "model.plan").exists() is (verb == "check")


@pytest.mark.usefixtures("h200")
def test_models_that_are_not_served_from_plans_are_not_asked_about(repository: Path) -> None:
    variant = repository / "embed_encoder" / "configs" / "plan.pbtxt"
    variant.write_text(variant.read_text().replace('backend: "tensorrt"', 'backend: "onnxruntime"'))
    done = CliRunner().invoke(app, ["engine", "check", "--repository", str(repository)])
    assert (done.exit_code, done.output) == (0, "")


def test_a_build_of_what_is_no_model_names_it(repository: Path) -> None:
    done = CliRunner().invoke(app, ["engine", "build", "nobody", "--repository", str(repository)])
    assert isinstance(done.exception, EngineRefused)
    assert "holds no model nobody" in str(done.exception)
