"""Batch sizes: what an ensemble lets through, its members must take."""

from typing import Any

import pytest


def test_an_ensemble_above_a_member(shelf: Any) -> None:
    shelf.edit("encoder", "max_batch_size: 8", "max_batch_size: 4")
    shelf.edit("pipeline", "max_batch_size: 8", "max_batch_size: 8  # here")
    assert shelf.told() == shelf.here("batch-above-member")
    assert "max_batch_size 8 of pipeline is above encoder's 4 (encoder/config.pbtxt:3)" in shelf.messages()


def test_an_ensemble_below_its_members_is_fine(shelf: Any) -> None:
    shelf.edit("pipeline", "max_batch_size: 8", "max_batch_size: 2")
    assert shelf.told() == []


def test_members_of_different_sizes_are_noted(shelf: Any) -> None:
    shelf.edit("encoder", "max_batch_size: 8", "max_batch_size: 4")
    shelf.edit("pipeline", "max_batch_size: 8", "max_batch_size: 4  # here")
    assert shelf.told() == []
    assert shelf.told(notes=True) == shelf.here("batch-sizes-differ")
    assert "tokenizer 8, encoder 4" in shelf.messages()


@pytest.mark.parametrize("unbatched", ["encoder", "pipeline"])
def test_one_batches_and_the_other_does_not(shelf: Any, unbatched: str) -> None:
    shelf.edit(unbatched, "max_batch_size: 8", "max_batch_size: 0")
    shelf.edit("pipeline", "max_batch_size: ", "max_batch_size:  ")
    told = [line for line in shelf.told() if line[2] == "batch-disagreement"]
    assert told
    assert {line[:2] for line in told} == {("pipeline/config.pbtxt", 3)}


def test_a_batch_may_be_the_first_size_of_an_unbatched_tensor(shelf: Any) -> None:
    """Triton compares the whole shapes too, so an unbatched ensemble may name the batch itself."""
    shelf.edit("pipeline", "max_batch_size: 8", "max_batch_size: 0")
    shelf.edit("pipeline", "dims: [ 1 ]", "dims: [ -1, 1 ]")
    shelf.edit("pipeline", "dims: [ 4 ]", "dims: [ -1, 4 ]")
    assert shelf.told() == []


def test_a_variant_below_the_ensemble(shelf: Any) -> None:
    (shelf.root / "encoder" / "configs").mkdir()
    config = (shelf.root / "encoder" / "config.pbtxt").read_text()
    variant = config.replace("max_batch_size: 8", "max_batch_size: 4  # here")
    (shelf.root / "encoder" / "configs" / "small.pbtxt").write_text(variant)
    assert shelf.told() == shelf.here("batch-above-member")


FAULTS = [
    ("preferred-batch-size", "dynamic_batching {\n  preferred_batch_size: [\n    4,\n    16  # here\n  ]\n}\n"),
    ("priority-levels", "dynamic_batching {\n  priority_levels: 2  # here\n}\n"),
    (
        "priority-levels",
        "dynamic_batching {\n  priority_levels: 2\n  default_priority_level: 1\n"
        "  priority_queue_policy { key: 3 value { allow_timeout_override: true } }  # here\n}\n",
    ),
    ("cache-decoupled", "model_transaction_policy { decoupled: true }\nresponse_cache { enable: true }  # here\n"),
]


@pytest.mark.parametrize(("rule", "setting"), FAULTS)
def test_a_batcher_that_triton_refuses(shelf: Any, rule: str, setting: str) -> None:
    shelf.append("encoder", setting)
    assert shelf.told() == shelf.here(rule)


def test_a_negative_size(shelf: Any) -> None:
    shelf.edit("encoder", "max_batch_size: 8", "max_batch_size: -1")
    assert ("encoder/config.pbtxt", 3, "batch-negative") in shelf.told()


def test_a_batcher_without_batches_is_a_warning(empty: Any) -> None:
    empty.add("alone", 'name: "alone"\nbackend: "python"\ndynamic_batching { }  # here\n')
    assert empty.told() == empty.here("batcher-idle")
    assert empty.check().passes()
