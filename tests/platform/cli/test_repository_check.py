"""What `up` and `doctor` say of the zoo's repository before anything starts."""

import io
import logging
from pathlib import Path

import pytest
from rich.console import Console

from zooserve.processes.state import unplanned
from zooserve.settings import Settings
from zooserve_cli import repository_check
from zooserve_cli.checks import all_checks
from zooserve_cli.display import Steps

ROOT = Path(__file__).parents[3]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A zoo of one model whose name is wrong."""
    folder = tmp_path / "models" / "zoo" / "m"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text("class TritonPythonModel: ...\n")
    (folder / "config.pbtxt").write_text('backend: "python"\nname: "n"\n')
    given = Settings(repository=tmp_path / "models", state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")
    return given.model_copy(update={"catalogue": ROOT / "zoo.yaml", "weights_lock": ROOT / "weights.lock"})


def test_a_fault_is_said_in_the_log_and_does_not_stop_the_start(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        (warning,) = repository_check.repository_warnings(settings)
    assert "m/config.pbtxt:2: [name-mismatch]" in warning
    assert warning in caplog.text


def test_a_fault_of_the_checker_itself_does_not_stop_the_start_either(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_check, "check_repository", lambda *given: [][0])
    assert repository_check.repository_warnings(settings) == ()
    assert "could not be checked" in caplog.text


def test_the_warnings_are_shown_once(settings: Settings) -> None:
    screen = io.StringIO()
    steps = Steps(Console(file=screen))
    state = unplanned("starting").model_copy(update={"warnings": ("m/config.pbtxt:2: [name-mismatch] other name",)})
    for _ in range(2):
        steps.show(state)
    assert screen.getvalue() == "! m/config.pbtxt:2: [name-mismatch] other name\n"


def test_doctor_names_the_fault(settings: Settings) -> None:
    (check,) = [check for check in all_checks(settings) if check.name == "zoo repository"]
    assert not check.ok
    assert check.found == "1 model, 0 ensembles: 1 error"
    assert "[name-mismatch]" in check.mend


def test_what_is_fetched_is_told_relative_to_the_zoo(settings: Settings) -> None:
    weights = repository_check._fetched(settings)
    assert Path("embed_encoder/1/model.onnx") in weights
    assert not any(path.parts[0] in ("zoo", "leaf") for path in weights)
