"""Each fault of an ensemble's wiring: found once, at its line, and nothing else with it."""

import re
from typing import Any

import pytest

FAULTS = [
    ("unknown-model", 'model_name: "encoder"', 'model_name: "encodr"  # here', "Did you mean encoder?"),
    (
        "unknown-tensor",
        'output_map { key: "vector" value: "embedding" }',
        'output_map {\n  key: "vektor"  # here\n  value: "embedding"\n}',
        "encoder has no output vektor. Did you mean vector?",
    ),
    (
        "open-input",
        'model_name: "encoder"\n      model_version: 1\n      input_map { key: "ids" value: "ids" }\n'
        '      input_map { key: "mask" value: "mask" }',
        'model_name: "encoder"  # here\n      model_version: 1\n      input_map { key: "ids" value: "ids" }',
        "leaves its input mask open",
    ),
    (
        "unproduced-edge",
        'input_map { key: "ids" value: "ids" }',
        'input_map { key: "ids" value: "id" }  # here',
        "nobody gives",
    ),
    ("dtype-mismatch", "data_type: TYPE_FP32", "data_type: TYPE_FP16  # here", "FP32 [4] (encoder/config.pbtxt:18)"),
    ("shape-mismatch", "dims: [ 4 ]", "dims: [ 5 ]  # here", "output embedding is FP32 [5] (pipeline/config.pbtxt:13)"),
    (
        "unproduced-output",
        "output [\n",
        'output [\n  {\n    name: "score"  # here\n    data_type: TYPE_FP32\n    dims: [ 1 ]\n  },\n',
        "no step produces the output score",
    ),
    (
        "unread-input",
        "input [\n",
        'input [\n  {\n    name: "lang"  # here\n    data_type: TYPE_STRING\n    dims: [ 1 ]\n  },\n',
        "no step reads the input lang",
    ),
]

# What else is then true: the end of an edge that was renamed has nobody at its other end.
OTHERS = {
    "open-input": [("pipeline/config.pbtxt", 25, "unread-edge")],
    "unproduced-edge": [("pipeline/config.pbtxt", 24, "unread-edge")],
}


@pytest.mark.parametrize(("rule", "old", "new", "says"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_fault_is_told_where_it_stands(shelf: Any, rule: str, old: str, new: str, says: str) -> None:
    shelf.edit("pipeline", old, new)
    others = [line for line in shelf.told() if line[2] != rule]
    assert [line for line in shelf.told() if line[2] == rule] == shelf.here(rule)
    assert others == OTHERS.get(rule, [])
    assert says in shelf.messages()


def test_the_sound_repository_has_no_fault(shelf: Any) -> None:
    assert shelf.told(notes=True) == []
    assert shelf.check().summary() == "3 models, 1 ensemble: no faults"


def test_an_edge_of_the_wrong_type_is_told_at_the_step_that_takes_it(shelf: Any) -> None:
    shelf.edit("tokenizer", 'name: "ids" data_type: TYPE_INT64', 'name: "ids" data_type: TYPE_INT32')
    shelf.edit("pipeline", 'input_map { key: "ids" value: "ids" }', 'input_map { key: "ids" value: "ids" }  # here')
    assert shelf.told() == shelf.here("dtype-mismatch")
    assert (
        "tokenizer's ids is INT32 [-1] (tokenizer/config.pbtxt:8) but encoder's ids is INT64 [-1]" in shelf.messages()
    )


def test_an_edge_of_the_wrong_shape_is_told_at_the_step_that_takes_it(shelf: Any) -> None:
    shelf.edit(
        "tokenizer",
        'name: "mask" data_type: TYPE_INT64 dims: [ -1 ]',
        'name: "mask" data_type: TYPE_INT64 dims: [ 8, 2 ]',
    )
    shelf.edit("pipeline", 'input_map { key: "mask" value: "mask" }', 'input_map { key: "mask" value: "mask" }  # here')
    assert shelf.told() == shelf.here("shape-mismatch")


def test_an_open_size_fits_any(shelf: Any) -> None:
    shelf.edit(
        "tokenizer", 'name: "mask" data_type: TYPE_INT64 dims: [ -1 ]', 'name: "mask" data_type: TYPE_INT64 dims: [ 8 ]'
    )
    assert shelf.told() == []


def test_an_edge_nobody_reads(shelf: Any) -> None:
    shelf.edit("tokenizer", "output [\n", 'output [\n  { name: "count" data_type: TYPE_INT32 dims: [ 1 ] },\n')
    assert shelf.told() == []
    shelf.edit(
        "pipeline",
        'output_map { key: "ids" value: "ids" }',
        'output_map { key: "ids" value: "ids" }\n      output_map { key: "count" value: "count" }  # here',
    )
    assert shelf.told() == shelf.here("unread-edge")


def test_an_input_that_only_an_output_reads(shelf: Any) -> None:
    shelf.edit("pipeline", "input [\n", 'input [\n  { name: "id" data_type: TYPE_INT64 dims: [ 1 ] },  # here\n')
    shelf.edit("pipeline", "output [\n", 'output [\n  { name: "id" data_type: TYPE_INT64 dims: [ 1 ] },\n')
    assert shelf.told() == shelf.here("unread-input")


def test_two_steps_that_give_one_edge(shelf: Any) -> None:
    shelf.edit(
        "pipeline", "  step [\n",
        '  step [\n    {\n      model_name: "encoder"\n      model_version: 1\n'
        '      input_map { key: "ids" value: "ids" }\n      input_map { key: "mask" value: "mask" }\n'
        '      output_map { key: "vector" value: "embedding" }\n    },\n',
    )  # fmt: skip
    shelf.edit("pipeline", 'value: "embedding" }\n    }\n', 'value: "embedding" }  # here\n    }\n')
    assert shelf.told() == shelf.here("two-producers")


def test_steps_may_stand_in_any_order(shelf: Any) -> None:
    path = shelf.root / "pipeline" / "config.pbtxt"
    head, first, second = re.split(r"(?=    \{\n      model_name)", path.read_text())
    second, end = second.split("\n  ]\n")
    path.write_text(f"{head}{second},\n{first.rstrip().rstrip(',')}\n  ]\n{end}")
    assert shelf.told() == []


def test_a_cycle_of_steps_is_told_once_with_its_way_around(shelf: Any) -> None:
    shelf.edit("tokenizer", "input [\n", 'input [\n  { name: "state" data_type: TYPE_FP32 dims: [ 4 ] },\n')
    shelf.edit(
        "pipeline",
        'input_map { key: "text" value: "text" }',
        'input_map { key: "text" value: "text" }\n      input_map { key: "state" value: "embedding" }  # here',
    )
    assert ("pipeline/config.pbtxt", 24, "cycle") in shelf.told()
    assert [line for line in shelf.told() if line[2] != "output-read-by-step"] == shelf.here("cycle")
    assert "tokenizer -> encoder -> tokenizer" in shelf.messages()


def test_a_cycle_beside_an_edge_that_nobody_gives(shelf: Any) -> None:
    shelf.edit("tokenizer", "input [\n", 'input [\n  { name: "state" data_type: TYPE_FP32 dims: [ 4 ] },\n')
    shelf.edit(
        "pipeline",
        'input_map { key: "text" value: "text" }',
        'input_map { key: "text" value: "nothing" }\n      input_map { key: "state" value: "embedding" }',
    )
    assert {"cycle", "unproduced-edge"} <= {rule for _, _, rule in shelf.told()}


def test_ensembles_that_contain_each_other(shelf: Any) -> None:
    inner = shelf.root / "pipeline" / "config.pbtxt"
    shelf.add("outer", inner.read_text().replace('"pipeline"', '"outer"'), code="")
    for name, other in (("pipeline", "outer"), ("outer", "pipeline")):
        path = shelf.root / name / "config.pbtxt"
        head = path.read_text().partition("ensemble_scheduling")[0]
        path.write_text(
            f'{head}ensemble_scheduling {{ step [ {{\n  model_name: "{other}"  # here\n  model_version: 1\n'
            '  input_map { key: "text" value: "text" }\n  output_map { key: "embedding" value: "embedding" }\n} ] }\n'
        )
    assert shelf.told() == shelf.here("cycle")


def test_an_ensemble_may_be_a_step(shelf: Any) -> None:
    head = (shelf.root / "pipeline" / "config.pbtxt").read_text().partition("ensemble_scheduling")[0]
    shelf.add(
        "outer",
        head.replace('"pipeline"', '"outer"')
        + 'ensemble_scheduling { step [ { model_name: "pipeline" model_version: 1 '
        'input_map { key: "text" value: "text" } output_map { key: "embedding" value: "embedding" } } ] }\n',
        code="",
    )
    assert shelf.told() == []


def test_an_optional_input_may_stay_open(shelf: Any) -> None:
    shelf.edit(
        "encoder", "input [\n", 'input [\n  { name: "scale" data_type: TYPE_FP32 dims: [ 1 ] optional: true },\n'
    )
    assert shelf.told() == []


def test_a_member_that_cannot_be_read_brings_no_findings_of_its_ensemble(shelf: Any) -> None:
    shelf.edit("encoder", "max_batch_size", "max_batchsize")
    assert shelf.told() == [("encoder/config.pbtxt", 3, "config-syntax")]
    assert "Did you mean max_batch_size?" in shelf.messages()


def test_an_output_that_a_step_reads_too_is_a_warning(shelf: Any) -> None:
    shelf.edit("pipeline", "output [\n", 'output [\n  { name: "ids" data_type: TYPE_INT64 dims: [ -1 ] },\n')
    shelf.edit("pipeline", 'input_map { key: "ids" value: "ids" }', 'input_map { key: "ids" value: "ids" }  # here')
    assert shelf.told() == shelf.here("output-read-by-step")
    assert shelf.check().passes()
    assert not shelf.check().passes(strict=True)


@pytest.mark.parametrize(
    "setting",
    [
        'model_warmup [ { name: "w" batch_size: 1 } ]',
        "response_cache { enable: true }",
        "instance_group [ { count: 1 } ]",
        "optimization { }",
    ],
)
def test_what_an_ensemble_cannot_have(shelf: Any, setting: str) -> None:
    shelf.append("pipeline", f"{setting}  # here\n")
    assert shelf.told() == shelf.here("ensemble-setting")


def test_an_ensemble_without_its_platform(shelf: Any) -> None:
    shelf.edit("pipeline", 'platform: "ensemble"\n', 'backend: "python"  # here\n')
    assert {line[1:] for line in shelf.told()} == {(1, "ensemble-platform"), (2, "ensemble-platform")}


def test_a_decoupled_member_is_noted(shelf: Any) -> None:
    shelf.append("encoder", "model_transaction_policy { decoupled: true }\n")
    assert shelf.told() == []
    assert ("pipeline/config.pbtxt", 28, "decoupled-member") in shelf.told(notes=True)


def test_inputs_that_a_python_model_completes_by_itself_are_not_unknown(shelf: Any) -> None:
    shelf.edit("encoder", "TYPE_FP32\n    dims: [ 4 ]", "TYPE_FP32\n    dims: [ 4 ]")
    (shelf.root / "encoder" / "1" / "model.py").write_text(
        "class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n        return config\n"
    )
    shelf.edit(
        "pipeline",
        'input_map { key: "mask" value: "mask" }',
        'input_map { key: "mask" value: "mask" }\n      input_map { key: "more" value: "mask" }',
    )
    assert shelf.told() == []
