"""A kept answer has only the outputs that were first asked for (tests/e2e/zoo/test_response_cache.py)."""

import pytest

from zooserve_ensembles.families import FAMILIES
from zooserve_ensembles.member import Member
from zooserve_ensembles.pipeline import Step

STEPS = [step for family in FAMILIES for pipeline in family.pipelines for step in pipeline.steps]
CACHED = [step for step in STEPS if isinstance(step.model, Member) and step.model.response_cache]


@pytest.mark.parametrize("step", CACHED, ids=lambda step: step.model.name)
def test_every_pipeline_asks_a_cached_member_for_all_that_it_gives(step: Step) -> None:
    assert set(step.gives) == {tensor.name for tensor in step.model.outputs}


def test_queries_are_cached_and_bulk_is_not() -> None:
    assert {step.model.name for step in CACHED} == {"embed_tokenizer", "embed_encoder"}
