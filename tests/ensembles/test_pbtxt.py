"""Configurations as text: what is read back is what was written, and it reads like a hand-written one."""

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from zooserve_ensembles.configuration import Commented, ensemble_config, member_config
from zooserve_ensembles.families import FAMILIES
from zooserve_ensembles.family import generated_members
from zooserve_ensembles.pbtxt import pbtxt

PIPELINES = [ensemble_config(pipeline) for family in FAMILIES for pipeline in family.pipelines]
MEMBERS = [
    member_config(each) for member in generated_members(FAMILIES) for each in (member, *member.variants.values())
]


def read(text: str) -> pb.ModelConfig:
    return text_format.Parse(text, pb.ModelConfig())


@pytest.mark.parametrize("made", [*PIPELINES, *MEMBERS], ids=lambda made: made.config.name)
def test_the_text_of_each_configuration_parses_back_to_it(made: Commented) -> None:
    assert read(pbtxt(made.config, made.comments)) == made.config


def test_fields_that_the_zoo_does_not_use_are_written_too() -> None:
    config = pb.ModelConfig(name="odd", default_model_filename='a "quoted"\nname', metric_tags={"b": "2", "a": "ä"})
    config.version_policy.specific.versions.extend([1, 3])
    config.optimization.execution_accelerators.gpu_execution_accelerator.add(name="trt").parameters["x"] = "y"
    config.instance_group.add(kind=pb.ModelInstanceGroup.KIND_GPU, gpus=[0, 1], count=2)
    config.input.add(name="pixels", data_type=pb.TYPE_UINT8, dims=[-1, 3]).reshape.shape.extend([3, -1])
    config.dynamic_batching.priority_queue_policy[2].max_queue_size = 7
    config.model_transaction_policy.decoupled = True
    config.response_cache.enable = True
    assert read(pbtxt(config, {})) == config


def test_a_tensor_stands_on_one_line() -> None:
    config = pb.ModelConfig(input=[pb.ModelInput(name="ids", data_type=pb.TYPE_INT64, dims=[-1])])
    assert pbtxt(config, {}) == 'input [\n  { name: "ids" data_type: TYPE_INT64 dims: [ -1 ] }\n]\n'


def test_a_comment_stands_above_what_it_explains() -> None:
    config = pb.ModelConfig(max_batch_size=8)
    config.parameters["niceness"].string_value = "10"
    lines = pbtxt(config, {"niceness": "Stands back.", "max_batch_size": "Small."}).splitlines()
    assert lines[0:2] == ["# Small.", "max_batch_size: 8"]
    assert lines[2:] == ["# Stands back.", 'parameters { key: "niceness" value { string_value: "10" } }']


def test_a_step_says_why_it_is_wired_so() -> None:
    config = pb.ModelConfig(ensemble_scheduling=pb.ModelEnsembling(step=[pb.ModelEnsembling.Step(model_name="head")]))
    config.ensemble_scheduling.step[0].input_map["vector"] = "vector"
    config.ensemble_scheduling.step[0].output_map["score"] = "score"
    assert "    {\n      # Passed through.\n      model_name" in pbtxt(config, {"head": "Passed through."})


def test_maps_are_written_in_one_order() -> None:
    one, other = pb.ModelConfig(metric_tags={"a": "1", "b": "2"}), pb.ModelConfig(metric_tags={"b": "2", "a": "1"})
    assert pbtxt(one, {}) == pbtxt(other, {})


def test_an_entry_of_a_map_that_does_not_fit_a_line_takes_several() -> None:
    config = pb.ModelConfig(metric_tags={"long": "x" * 100})
    assert pbtxt(config, {}) == f'metric_tags {{\n  key: "long"\n  value: "{"x" * 100}"\n}}\n'


def test_no_line_is_longer_than_a_screen() -> None:
    text = "".join(pbtxt(made.config, made.comments) for made in (*PIPELINES, *MEMBERS))
    assert max(map(len, text.splitlines())) <= 120
