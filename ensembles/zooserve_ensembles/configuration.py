"""Definitions as Triton's own protobuf, with the comments that their readers get."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from zooserve_ensembles.member import Member, Warmup
from zooserve_ensembles.pipeline import Pipeline, Step, Tensor

__all__ = ["Commented", "ModelConfig", "ensemble_config", "member_config"]

ModelConfig = Any
"""`model_config_pb2.ModelConfig`; the generated module brings no types."""

LONGEST_WAIT_US = 600_000_000
"""Triton lets a request's own timeout only shorten this, and ignores it where this is 0."""


@dataclass(frozen=True)
class Commented:
    """A configuration, what it is, and comments by the field, parameter or step that they stand above."""

    config: ModelConfig
    summary: str
    comments: Mapping[str, str]


def ensemble_config(pipeline: Pipeline) -> Commented:
    """The ensemble of a pipeline."""
    config = pb.ModelConfig(
        name=pipeline.name,
        platform="ensemble",
        max_batch_size=pipeline.max_batch_size,
        input=[_input(tensor, ragged=False) for tensor in pipeline.inputs],
        output=[_output(tensor) for tensor in pipeline.outputs],
        ensemble_scheduling=pb.ModelEnsembling(step=[_step(step) for step in pipeline.steps]),
    )
    comments = {step.model.name: step.reason for step in pipeline.steps if step.reason}
    return Commented(config, pipeline.summary, comments)


def member_config(member: Member) -> Commented:
    """The configuration of a generated model."""
    config = pb.ModelConfig(
        name=member.name,
        backend=member.backend,
        max_batch_size=member.max_batch_size,
        input=[_input(tensor, member.ragged and -1 in tensor.dims) for tensor in member.inputs],
        output=[_output(tensor) for tensor in member.outputs],
        instance_group=[_instances(member)],
        dynamic_batching=pb.ModelDynamicBatching(
            default_queue_policy=pb.ModelQueuePolicy(
                timeout_action=pb.ModelQueuePolicy.REJECT,
                default_timeout_microseconds=LONGEST_WAIT_US,
                allow_timeout_override=True,
                max_queue_size=member.max_queue_size,
            )
        ),
        model_warmup=[_warmup(warmup) for warmup in member.warmups],
    )
    for accelerator in member.accelerators:
        entry = config.optimization.execution_accelerators.gpu_execution_accelerator.add(name=accelerator.name)
        entry.parameters.update(accelerator.parameters)
    if member.response_cache:
        config.response_cache.enable = True
    for name, value in _parameters(member).items():
        config.parameters[name].string_value = value
    return Commented(config, member.summary, member.reasons)


def _instances(member: Member) -> Any:
    kind = pb.ModelInstanceGroup.KIND_GPU if member.on_gpu else pb.ModelInstanceGroup.KIND_CPU
    profiles = [str(profile) for profile in member.profiles]
    return pb.ModelInstanceGroup(kind=kind, count=member.instances, gpus=member.gpus, profile=profiles)


def _parameters(member: Member) -> Mapping[str, str]:
    threads = {} if member.threads is None else {"intra_op_thread_count": str(member.threads)}
    niceness = {"niceness": str(member.niceness)} if member.niceness else {}
    budget = {"run_elements": str(member.run_elements)} if member.run_elements else {}
    return {**threads, **niceness, **budget, **member.parameters}


def _step(step: Step) -> Any:
    return pb.ModelEnsembling.Step(
        model_name=step.model.name, model_version=step.version, input_map=step.takes, output_map=step.gives
    )


def _warmup(warmup: Warmup) -> Any:
    made = pb.ModelWarmup(name=warmup.name, batch_size=warmup.batch_size)
    for wanted in warmup.inputs:
        entry = made.inputs[wanted.tensor.name]
        entry.data_type = _data_type(wanted.tensor)
        entry.dims.extend(wanted.tensor.dims)
        if wanted.content is None:
            entry.zero_data = True
        else:
            entry.input_data_file = warmup.file_of(wanted)
    return made


def _input(tensor: Tensor, ragged: bool) -> Any:
    return pb.ModelInput(name=tensor.name, data_type=_data_type(tensor), dims=tensor.dims, allow_ragged_batch=ragged)


def _output(tensor: Tensor) -> Any:
    return pb.ModelOutput(name=tensor.name, data_type=_data_type(tensor), dims=tensor.dims)


def _data_type(tensor: Tensor) -> int:
    number: int = pb.DataType.Value(f"TYPE_{tensor.dtype}")
    return number
