"""Rerankers of one shape: what a user's own cross-encoder is told to be."""

from typing import Any

import numpy as np

from zooserve_ensembles.families.rerank_cross import cross_encoder
from zooserve_ensembles.families.rerank_trees import RANKER
from zooserve_ensembles.graphs.trees import HEAD, read_trees
from zooserve_ensembles.member import Member


def names(model: Any) -> tuple[list[str], list[str]]:
    return [tensor.name for tensor in model.inputs], [tensor.name for tensor in model.outputs]


def test_a_model_without_token_types_takes_none_from_its_tokenizer() -> None:
    pipeline = cross_encoder("rerank_bge", "bge", buckets=(32, 512), pad_id=1, token_types=False)
    tokenizer, encoder = (step.model for step in pipeline.steps)
    assert names(tokenizer) == (["text"], ["input_ids", "attention_mask", "tokens"])
    assert names(encoder) == (["input_ids", "attention_mask"], ["score"])
    assert isinstance(tokenizer, Member)
    assert tokenizer.parameters == {"buckets": "32,512", "pad_id": "1", "token_types": "no"}


def test_a_model_with_token_types_takes_the_inputs_that_export_names() -> None:
    encoder = cross_encoder("rerank_own", "own").steps[1].model
    assert names(encoder) == (["input_ids", "attention_mask", "token_type_ids"], ["score"])


def test_the_trees_take_as_many_numbers_as_the_configuration_says() -> None:
    (features,) = RANKER.inputs
    model = read_trees(HEAD)
    assert features.dims == (len(model.names),)
    used = np.unique(np.concatenate([tree.features for tree in model.trees]))
    assert used.max() < len(model.names)
