"""Where a part of a repository is broken the checker names it, then Triton while it loads, and the rest serves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from zooserve_ensembles.checking import Finding, Severity, check_repository

pytestmark = pytest.mark.e2e

# What loads, and fails only at the first request that has such a token.
FAILS_LATE = {"foreign_tokenizer"}


def errors(root: Path) -> dict[str, list[Finding]]:
    """The checker's errors by model."""
    found: dict[str, list[Finding]] = {}
    for finding in check_repository(root).findings:
        if finding.severity is Severity.ERROR:
            found.setdefault(finding.place.file.relative_to(root).parts[0], []).append(finding)
    return found


def unloaded(orchard: Any) -> set[str]:
    """What Triton's index lists as not ready, or not at all."""
    ready = {entry["name"] for entry in orchard.client.get_model_repository_index() if entry.get("state") == "READY"}
    return {folder.name for folder in orchard.root.iterdir()} - ready


def test_the_checker_finds_exactly_what_triton_refuses(orchard: Any) -> None:
    assert errors(orchard.root).keys() - FAILS_LATE == unloaded(orchard)


@pytest.mark.parametrize("model", ["straight", "backwards"])
def test_the_sound_ensembles_serve_beside_the_broken(orchard: Any, model: str) -> None:
    answer = orchard.infer(model, {"x": np.ones((2, 1), np.float32)}, ["y"])
    assert answer["y"].tolist() == [[1.0], [1.0]]


def test_the_sound_embedding_serves_beside_the_broken(orchard: Any) -> None:
    answer = orchard.ask("sound", ["w1 w2", "w3"], ["vector"])["vector"]
    assert answer.shape == (2, 4)
    assert np.isfinite(answer).all()


@pytest.mark.parametrize(
    ("model", "rule"), [("not_onnx", "not-onnx"), ("cut_off", "not-onnx"), ("without_data", "onnx-data-missing")]
)
def test_a_broken_file_is_named_in_the_index(orchard: Any, model: str, rule: str) -> None:
    state, told = orchard.state(model)
    assert state == "UNAVAILABLE"
    assert f"{model} version 1: ONNX Runtime cannot load model.onnx" in told
    assert [finding.rule for finding in errors(orchard.root)[model]] == [rule]


def test_a_configuration_edited_by_hand_is_named_in_the_log(orchard: Any) -> None:
    (finding,) = errors(orchard.root)["edited"]
    assert (finding.place.line, finding.rule) == (7, "config-syntax")
    assert "Did you mean max_queue_delay_microseconds?" in finding.message
    log = orchard.server.log_tail(2000)
    assert "max_queue_delay_us" in log
    assert "edited/config.pbtxt" in log


def test_a_foreign_tokenizer_fails_by_name_and_only_where_its_ids_are_foreign(orchard: Any) -> None:
    (finding,) = errors(orchard.root)["foreign_tokenizer"]
    assert finding.rule == "vocabulary-mismatch"
    assert orchard.ask("foreign", ["w15"], ["vector"])["vector"].shape == (1, 4)
    with pytest.raises(InferenceServerException, match="encoder version 1: ") as refused:
        orchard.ask("foreign", ["w19"], ["vector"])
    assert "idx=19" in refused.value.message()
