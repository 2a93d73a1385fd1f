"""The families agree with the catalogue, and warm what they say they warm."""

import re
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from zooserve.catalogue import load_catalogue
from zooserve_ensembles.buckets import bucket_for
from zooserve_ensembles.families import FAMILIES
from zooserve_ensembles.family import generated_members
from zooserve_ensembles.member import Member

ROOT = Path(__file__).parents[3]
ZOO = ROOT / "model_repository" / "zoo"
PIPELINES = {pipeline.name: pipeline for family in FAMILIES for pipeline in family.pipelines}
TOKENIZERS = [
    member for member in generated_members(FAMILIES) if (ZOO / member.name / "1" / "tokenizer.json").is_file()
]


def test_the_example_of_the_documentation_is_a_family() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "ensembles.md").read_text(), re.DOTALL)
    defined: dict[str, Any] = {}
    exec(example, defined)
    assert [member.name for member in generated_members([defined["FAMILY"]])] == [
        "embed_small_tokenizer",
        "embed_small_encoder",
    ]


def test_every_pipeline_has_a_name_of_its_own() -> None:
    assert len(PIPELINES) == sum(len(family.pipelines) for family in FAMILIES)


def test_a_public_model_is_served_by_a_pipeline_of_its_class_with_its_buckets() -> None:
    catalogue = load_catalogue(ROOT / "zoo.yaml")
    served = [
        (model, str(slo_class), PIPELINES[name])
        for model in (*catalogue.models, *catalogue.disabled)
        for slo_class, name in model.triton.items()
        if name in PIPELINES
    ]
    assert {pipeline.name for _, _, pipeline in served} == set(PIPELINES)
    for model, slo_class, pipeline in served:
        assert (pipeline.name, slo_class) == (pipeline.name, pipeline.slo_class)
        assert (pipeline.name, tuple(model.buckets)) == (pipeline.name, pipeline.buckets)


@pytest.mark.parametrize("member", TOKENIZERS, ids=lambda member: member.name)
def test_each_warm_up_text_has_the_length_that_it_is_named_after(member: Member) -> None:
    tokenizer = Tokenizer.from_file(str(ZOO / member.name / "1" / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for warmup in member.warmups:
        (text,) = (wanted.content for wanted in warmup.inputs)
        assert text is not None
        size, words = int.from_bytes(text[:4], "little"), text[4:].decode()
        assert size == len(text) - 4
        length = len(tokenizer.encode(words).ids)
        assert length <= member.buckets[-1]
        if warmup.name.startswith("bucket_"):
            assert warmup.name == f"bucket_{bucket_for(length, member.buckets)}"
