"""Pins, and the policies that must let them hold."""

from typing import Any

import pytest

FIRST = 'model_name: "tokenizer"\n      model_version: 1'
SECOND = 'model_name: "encoder"\n      model_version: 1'


def test_a_floating_step_beside_pinned_ones_is_an_error(shelf: Any) -> None:
    shelf.edit("pipeline", SECOND, 'model_name: "encoder"\n      model_version: -1  # here')
    assert shelf.told() == shelf.here("floating-version")
    assert not shelf.check().passes()
    assert "Pin it: model_version: 1" in shelf.messages()


def test_an_ensemble_that_floats_altogether_is_only_warned_of_while_there_is_one_version(shelf: Any) -> None:
    for step in (FIRST, SECOND):
        shelf.edit("pipeline", step, step.replace("version: 1", "version: -1  # here"))
    assert shelf.told() == shelf.here("floating-version")
    assert shelf.check().passes()
    (shelf.root / "encoder" / "2").mkdir()
    (shelf.root / "encoder" / "2" / "model.py").write_text("class TritonPythonModel: ...\n")
    assert not shelf.check().passes()
    assert "encoder has the versions 1, 2" in shelf.messages()


def test_a_name_that_says_release_makes_floating_an_error(shelf: Any) -> None:
    for step in (FIRST, SECOND):
        shelf.edit("pipeline", step, step.replace("version: 1", "version: -1"))
    (shelf.root / "pipeline").rename(shelf.root / "pipeline_v3")
    shelf.edit("pipeline_v3", '"pipeline"', '"pipeline_v3"')
    assert not shelf.check().passes()


def test_a_step_without_a_version_reads_as_version_0(shelf: Any) -> None:
    shelf.edit("pipeline", SECOND, 'model_name: "encoder"  # here')
    assert shelf.told() == shelf.here("version-missing")


def test_a_pinned_version_without_a_folder(shelf: Any) -> None:
    shelf.edit("pipeline", SECOND, 'model_name: "encoder"\n      model_version: 3  # here')
    assert shelf.told() == shelf.here("pinned-version-missing")
    assert "encoder/3/ is not there; it has 1" in shelf.messages()


@pytest.mark.parametrize(
    ("policy", "excluded"),
    [
        ("", True),
        ("version_policy { latest { num_versions: 1 } }\n", True),
        ("version_policy { specific { versions: [ 2 ] } }\n", True),
        ("version_policy { latest { num_versions: 2 } }\n", False),
        ("version_policy { specific { versions: [ 1, 2 ] } }\n", False),
        ("version_policy { all { } }\n", False),
    ],
)
def test_a_policy_must_load_the_pinned_version(shelf: Any, policy: str, *, excluded: bool) -> None:
    shelf.add("encoder", None, 2)
    shelf.append("encoder", policy)
    shelf.edit("pipeline", SECOND, 'model_name: "encoder"\n      model_version: 1  # here')
    assert shelf.told() == (shelf.here("pinned-version-excluded") if excluded else [])
    if policy and excluded:
        assert "(encoder/config.pbtxt:23) loads only 2" in shelf.messages()


def test_a_policy_whose_versions_are_not_there(shelf: Any) -> None:
    shelf.append("encoder", "version_policy {\n  specific {\n    versions: [ 4 ]  # here\n  }\n}\n")
    assert shelf.here("policy-loads-nothing")[0] in shelf.told()


def test_versions_are_compared_as_numbers(shelf: Any) -> None:
    shelf.add("encoder", None, 9, 10)
    shelf.edit("pipeline", SECOND, 'model_name: "encoder"\n      model_version: 10')
    assert shelf.told() == []
