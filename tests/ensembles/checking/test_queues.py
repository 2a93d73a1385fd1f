"""A bounded queue: harmless at the only entry of an ensemble, and nowhere else."""

from typing import Any

import pytest

BOUND = "dynamic_batching {\n  default_queue_policy {\n    max_queue_size: 16  # here\n  }\n}\n"
PRIORITIES = """dynamic_batching {
  priority_levels: 2
  default_priority_level: 2
  priority_queue_policy {
    key: 1
    value { max_queue_size: 16 }  # here
  }
}
"""
BRANCH = """name: "branch"
backend: "python"
max_batch_size: 8
input [ { name: "ids" data_type: TYPE_INT64 dims: [ -1 ] } ]
output [ { name: "label" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
OUTPUT = '  {\n    name: "label"\n    data_type: TYPE_FP32\n    dims: [ 1 ]\n  },\n'


def fan_out(shelf: Any, edge: str = "ids", tensor: str = "ids") -> None:
    """A second branch behind the tokenizer, or beside it."""
    shelf.add("branch", BRANCH.replace('"ids" data_type: TYPE_INT64 dims: [ -1 ]', f'"{tensor}" ' + KINDS[edge]))
    shelf.edit("pipeline", "output [\n", f"output [\n{OUTPUT}")
    shelf.edit(
        "pipeline",
        "  step [\n",
        f'  step [\n    {{\n      model_name: "branch"\n      model_version: 1\n'
        f'      input_map {{ key: "{tensor}" value: "{edge}" }}\n'
        '      output_map { key: "label" value: "label" }\n    },\n',
    )


KINDS = {"ids": "data_type: TYPE_INT64 dims: [ -1 ]", "text": "data_type: TYPE_STRING dims: [ 1 ]"}


def test_the_only_entry_may_be_bounded(shelf: Any) -> None:
    shelf.append("tokenizer", BOUND)
    assert shelf.told() == []


@pytest.mark.parametrize("policy", [BOUND, PRIORITIES])
def test_a_bound_behind_the_entry_of_a_chain(shelf: Any, policy: str) -> None:
    shelf.append("encoder", policy)
    assert shelf.told() == shelf.here("queue-bound")
    assert "(pipeline/config.pbtxt:28): it is not the first step of pipeline: a chain as linear" in shelf.messages()


def test_a_bound_behind_a_fan_out(shelf: Any) -> None:
    fan_out(shelf)
    shelf.append("encoder", BOUND)
    assert shelf.told() == shelf.here("queue-bound")
    assert "wedges Triton 2.51 for good, and it still calls itself ready" in shelf.messages()


def test_a_bound_beside_another_entry(shelf: Any) -> None:
    fan_out(shelf, "text", "text")
    shelf.append("tokenizer", BOUND)
    assert shelf.told() == shelf.here("queue-bound")
    assert "branch reads the inputs of pipeline beside it" in shelf.messages()


def test_a_bound_inside_an_ensemble_that_is_itself_a_later_step(shelf: Any) -> None:
    head = (shelf.root / "pipeline" / "config.pbtxt").read_text().partition("ensemble_scheduling")[0]
    shelf.add("cleaner", CLEANER)
    shelf.add(
        "outer",
        head.replace('"pipeline"', '"outer"')
        + 'ensemble_scheduling { step [ { model_name: "cleaner" model_version: 1 input_map { key: "raw" value: "text" }'
        ' output_map { key: "clean" value: "clean" } }, { model_name: "pipeline" model_version: 1'
        ' input_map { key: "text" value: "clean" } output_map { key: "embedding" value: "embedding" } } ] }\n',
        code="",
    )
    shelf.append("tokenizer", BOUND)
    assert shelf.told() == shelf.here("queue-bound")


CLEANER = """name: "cleaner"
backend: "python"
max_batch_size: 8
input [ { name: "raw" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "clean" data_type: TYPE_STRING dims: [ 1 ] } ]
"""


def test_a_bound_in_a_variant_is_found_there(shelf: Any) -> None:
    (shelf.root / "encoder" / "configs").mkdir()
    config = (shelf.root / "encoder" / "config.pbtxt").read_text()
    (shelf.root / "encoder" / "configs" / "gpu.pbtxt").write_text(config + BOUND)
    assert shelf.told() == shelf.here("queue-bound")


def test_a_model_outside_every_ensemble_may_be_bounded(empty: Any) -> None:
    empty.add("branch", BRANCH + BOUND)
    assert empty.told() == []


def test_an_override_of_no_timeout_is_warned_of(shelf: Any) -> None:
    shelf.append("encoder", "dynamic_batching {\n  default_queue_policy { allow_timeout_override: true }  # here\n}\n")
    assert shelf.told() == shelf.here("timeout-ignored")
    assert shelf.check().passes()


def test_a_timeout_for_everyone_is_only_noted(shelf: Any) -> None:
    shelf.append(
        "encoder", "dynamic_batching {\n  default_queue_policy { default_timeout_microseconds: 9 }  # here\n}\n"
    )
    assert shelf.told() == []
    assert shelf.told(notes=True) == shelf.here("timeout-ignored")
