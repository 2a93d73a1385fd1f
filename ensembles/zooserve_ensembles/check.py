"""Does a Triton repository hang together? Every configuration parsed by Triton's own protobuf, every edge compared.

python -m zooserve_ensembles.check model_repository/zoo
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from zooserve_ensembles.buckets import BUCKETS

__all__ = ["check_repository"]

Config = Any  # model_config_pb2.ModelConfig: the generated module brings no types
Configs = Mapping[str, Config]


def check_repository(root: Path, buckets: Sequence[int] = BUCKETS) -> list[str]:
    """What is wrong, one sentence each, empty when nothing is."""
    folders = sorted(file.parent for file in root.glob("*/config.pbtxt"))
    configs: dict[str, Config] = {}
    problems: list[str] = []
    for folder in folders:
        try:
            configs[folder.name] = _parsed(folder / "config.pbtxt")
            problems += _variant_problems(folder, configs[folder.name])
        except text_format.ParseError as exc:
            problems.append(str(exc))
    for name, config in configs.items():
        problems += [f"{name}: {problem}" for problem in _problems(root / name, config, configs, buckets)]
    return problems


def _problems(folder: Path, config: Config, configs: Configs, buckets: Sequence[int]) -> Iterator[str]:
    if config.name != folder.name:
        yield f'the configuration says name: "{config.name}", its folder is called {folder.name}'
    if not any(version.name.isdecimal() for version in folder.iterdir()):
        yield "there is no version folder; an ensemble needs one too (1/.gitkeep)"
    if config.platform == "ensemble":
        yield from _ensemble_problems(folder.parent, config, configs)
    else:
        yield from _warmup_problems(folder, config, buckets)
        yield from _queue_problems(config, configs)


def _ensemble_problems(root: Path, config: Config, configs: Configs) -> Iterator[str]:
    if config.model_warmup:
        yield "an ensemble with model_warmup does not load: warm its stages"
    # What each name in the ensemble carries: its type and its shape without the batch.
    edges = {tensor.name: _kind(tensor) for tensor in config.input}
    for step in config.ensemble_scheduling.step:
        if step.model_name not in configs:
            yield f"its step {step.model_name} is not in this repository"
            continue
        member = configs[step.model_name]
        if not (root / step.model_name / str(step.model_version)).is_dir():
            yield f"its step {step.model_name} is pinned to version {step.model_version}, which has no folder"
        if config.max_batch_size > member.max_batch_size:
            yield f"max_batch_size {config.max_batch_size} is above {step.model_name}'s {member.max_batch_size}"
        yield from _step_problems(step, member, edges)
    for tensor in config.output:
        yield from _edge_problems(f"output {tensor.name}", tensor.name, _kind(tensor), edges)
    taken = {edge for step in config.ensemble_scheduling.step for edge in step.input_map.values()}
    for name in sorted(taken & {tensor.name for tensor in config.output}):
        yield f"output {name} is also a step's input: asking for some of the outputs then ends in a deadlock error"


def _step_problems(step: Any, member: Config, edges: dict[str, str]) -> Iterator[str]:
    inputs = {tensor.name: _kind(tensor) for tensor in member.input}
    outputs = {tensor.name: _kind(tensor) for tensor in member.output}
    for name in sorted(inputs.keys() - step.input_map.keys()):
        yield f"step {step.model_name} leaves its input {name} open"
    for name in sorted((step.input_map.keys() - inputs.keys()) | (step.output_map.keys() - outputs.keys())):
        yield f"step {step.model_name} maps {name}, which that model does not have"
    for name in sorted(inputs.keys() & step.input_map.keys()):
        yield from _edge_problems(f"step {step.model_name}'s input {name}", step.input_map[name], inputs[name], edges)
    edges |= {step.output_map[name]: outputs[name] for name in outputs.keys() & step.output_map.keys()}


def _edge_problems(taker: str, edge: str, wanted: str, edges: Mapping[str, str]) -> Iterator[str]:
    if edge not in edges:
        yield f"{taker} takes {edge}, which no step before it gives"
    elif edges[edge] != wanted:
        yield f"{taker} is {wanted}, but {edge} is {edges[edge]}"


def _warmup_problems(folder: Path, config: Config, buckets: Sequence[int]) -> Iterator[str]:
    if not config.model_warmup:
        yield "it has no model_warmup: its first request would pay for it"
    for sample in config.model_warmup:
        for name, tensor in sample.inputs.items():
            if tensor.input_data_file and not (folder / "warmup" / tensor.input_data_file).is_file():
                yield f"warm-up {sample.name} reads warmup/{tensor.input_data_file} for {name}, which is not there"
    for tensor in config.input:
        if -1 in tensor.dims:
            missing = set(buckets) - _warmed(config, tensor.name, list(tensor.dims).index(-1))
            if missing:
                yield f"no warm-up of {tensor.name} at {', '.join(map(str, sorted(missing)))}"
    if _pads_text(config):
        samples = {sample.name for sample in config.model_warmup}
        for bucket in buckets:
            if f"bucket_{bucket}" not in samples:
                yield f"no warm-up called bucket_{bucket}, a text that is padded to that length"


def _pads_text(config: Config) -> bool:
    """Whether this is a tokenizer: text in, rows of a bucket's length out."""
    takes_text = any(tensor.data_type == model_config_pb2.TYPE_STRING for tensor in config.input)
    return takes_text and any(-1 in tensor.dims for tensor in config.output)


def _warmed(config: Config, name: str, axis: int) -> set[int]:
    return {sample.inputs[name].dims[axis] for sample in config.model_warmup if name in sample.inputs}


def _queue_problems(config: Config, configs: Configs) -> Iterator[str]:
    policy = config.dynamic_batching.default_queue_policy
    if not (policy.default_timeout_microseconds and policy.allow_timeout_override):
        yield "without default_timeout_microseconds and allow_timeout_override a request's own timeout is ignored"
    if policy.max_queue_size and not _only_first(config.name, configs.values()):
        yield "max_queue_size behind an ensemble's first step can wedge the server"


def _only_first(name: str, configs: Iterable[Config]) -> bool:
    steps = [[step.model_name for step in config.ensemble_scheduling.step] for config in configs]
    return not any(name in names[1:] for names in steps)


def _variant_problems(folder: Path, base: Config) -> Iterator[str]:
    for file in sorted((folder / "configs").glob("*.pbtxt")):
        variant = _parsed(file)
        if _contract(variant) != _contract(base):
            yield f"{folder.name}: configs/{file.name} has another name, batch size or tensors than config.pbtxt"


def _contract(config: Config) -> tuple[str, int, list[str], list[str]]:
    inputs, outputs = ([f"{tensor.name} {_kind(tensor)}" for tensor in side] for side in (config.input, config.output))
    return config.name, config.max_batch_size, inputs, outputs


def _kind(tensor: Any) -> str:
    return f"{model_config_pb2.DataType.Name(tensor.data_type)} {list(tensor.dims)}"


def _parsed(file: Path) -> Config:
    try:
        return text_format.Parse(file.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
    except text_format.ParseError as exc:
        raise text_format.ParseError(f"{file.parent.name}/{file.name}:{exc}") from exc


if __name__ == "__main__":
    sys.exit("\n".join(check_repository(Path(sys.argv[1]))) or 0)
