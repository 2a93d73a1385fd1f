"""What the servers of one card take of its memory, in bytes: their settings name three different kinds of share.

vLLM's `gpu_memory_utilization` is of the whole card, TensorRT-LLM's `free_gpu_memory_fraction` of what its weights
leave, ONNX Runtime's `gpu_mem_limit` is absolute and of each session. Pure: it is given commands and configurations,
and says what they come to. What it counts is the most that each may come to hold, whoever starts first.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

__all__ = [
    "CARD_VARIABLE",
    "LARGEST_SHARE",
    "WEIGHTS_VARIABLE",
    "WORKSPACE_VARIABLE",
    "CardSettings",
    "CardShares",
    "Part",
    "Server",
    "card_settings",
    "card_shares",
    "enabled",
]

Configs = Mapping[str, Any]
"""`model_config_pb2.ModelConfig` by model; the generated module brings no types."""

MIB = 1 << 20
LARGEST_SHARE = 0.95
"""Of the card, for all of its servers together: drivers, fragments and what was not foreseen take the rest."""

CONTEXT_BYTES = 531 * MIB
"""A process's CUDA context with ONNX Runtime's kernels (H200, driver 580, ONNX Runtime 1.31.1; docs/gpu.md)."""
SESSION_BYTES = 96 * MIB
"""What a session of ONNX Runtime holds beside its arena: handles and workspaces of cuBLAS and cuDNN (the same run)."""
POOL_BYTES = 64 * MIB
"""Triton's CUDA memory pool of a card where `--cuda-memory-pool-byte-size` does not name it."""
UTILIZATION = 0.9
"""vLLM's, where it is not said."""
FREE_FRACTION = 0.9
"""TensorRT-LLM's, where it is not said."""
WORKSPACE_BYTES = 4 << 30
"""Activations and captured graphs of a language model beside its weights: an allowance, not measured."""

ON_CARD = ("onnxruntime", "tensorrt")
"""Backends whose instances go to the card unless their kind is KIND_CPU."""

CARD_VARIABLE = "SHARED_GPU_BYTES"
WEIGHTS_VARIABLE = "LEAF_SHARED_WEIGHTS_BYTES"
WORKSPACE_VARIABLE = "LEAF_SHARED_WORKSPACE_BYTES"


@dataclass(frozen=True)
class CardSettings:
    """What nobody can read from a command: the card, and the checkpoint on it."""

    card_bytes: int
    weights_bytes: int = 0
    workspace_bytes: int = WORKSPACE_BYTES


@dataclass(frozen=True)
class Server:
    """One container on the card: TensorRT-LLM's with a model.yaml, the zoo's with configurations, else vLLM's."""

    name: str
    words: Sequence[str]
    """Its command line, with its variables replaced."""
    configs: Configs | None = None
    """The zoo's configurations, as its `--model-config-name` chooses them (`zooserve.triton.configs.read_configs`)."""
    model_yaml: str | None = None
    """The text of tensorrt_llm/1/model.yaml."""


@dataclass(frozen=True)
class Part:
    """Something that takes memory of the card."""

    name: str
    bytes: int


@dataclass(frozen=True)
class CardShares:
    """Everything that is on one card."""

    card_bytes: int
    parts: tuple[Part, ...]
    unbounded: tuple[str, ...] = ()
    """What takes as much as it likes, by a sentence each."""

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts)

    def share(self, part_bytes: int) -> float:
        """Of the card."""
        return part_bytes / self.card_bytes

    @property
    def fault(self) -> str:
        """What is wrong, with the largest part; empty if all of it fits."""
        if self.unbounded:
            return "; ".join(self.unbounded)
        if self.share(self.total) <= LARGEST_SHARE:
            return ""
        largest = max(self.parts, key=lambda part: part.bytes)
        return (
            f"the servers of this card come to {_gib(self.total)} of its {_gib(self.card_bytes)} "
            f"({self.share(self.total):.2f}, and {LARGEST_SHARE} is the most): the largest part is {largest.name} with "
            f"{_gib(largest.bytes)}"
        )

    def lines(self) -> list[str]:
        """The table: part, bytes, share of the card; the sum last."""
        rows = [*self.parts, Part("in all", self.total)]
        width = max(len(part.name) for part in rows)
        return [f"{part.name:<{width}} {part.bytes:>16,} {self.share(part.bytes):>6.3f}" for part in rows]


def card_settings(environment: Mapping[str, str]) -> CardSettings:
    """From the variables of `.env`. Raises ValueError where one is missing or is no number of bytes."""
    return CardSettings(
        _bytes(environment, CARD_VARIABLE, None),
        _bytes(environment, WEIGHTS_VARIABLE, 0),
        _bytes(environment, WORKSPACE_VARIABLE, WORKSPACE_BYTES),
    )


def card_shares(settings: CardSettings, servers: Sequence[Server]) -> CardShares:
    """What the servers of one card come to. Raises ValueError where a share cannot be read."""
    parts: list[Part] = []
    unbounded: list[str] = []
    for server in servers:
        if server.model_yaml is not None:
            parts += _tensorrt_llm(server, server.model_yaml, settings)
        elif server.configs is not None:
            parts += _zoo(server, server.configs)
            unbounded += _without_limit(server, server.configs)
        else:
            parts += _vllm(server, settings)
    return CardShares(settings.card_bytes, tuple(parts), tuple(unbounded))


def enabled(configs: Configs, ensembles: Collection[str]) -> Configs:
    """Those of the named ensembles and of their members; what a server with fewer weights in place comes to load."""
    wanted = set(ensembles)
    for name in ensembles:
        if name in configs:
            wanted |= {step.model_name for step in configs[name].ensemble_scheduling.step}
    return {name: config for name, config in configs.items() if name in wanted}


def _vllm(server: Server, settings: CardSettings) -> Iterator[Part]:
    utilization = _fraction(f"{server.name}: gpu-memory-utilization", _flag(server.words, "gpu-memory-utilization"))
    share = UTILIZATION if utilization is None else utilization
    yield Part(f"{server.name}: {share} of the card (gpu_memory_utilization)", round(share * settings.card_bytes))
    # It counts from when its context was already there.
    yield Part(f"{server.name}: CUDA context", CONTEXT_BYTES)


def _tensorrt_llm(server: Server, model_yaml: str, settings: CardSettings) -> Iterator[Part]:
    if not settings.weights_bytes:
        raise ValueError(f"{server.name}: set {WEIGHTS_VARIABLE}: its cache is a fraction of what the weights leave")
    share = _free_fraction(server, model_yaml)
    fixed = settings.weights_bytes + settings.workspace_bytes + CONTEXT_BYTES
    yield Part(f"{server.name}: weights", settings.weights_bytes)
    yield Part(f"{server.name}: workspace and graphs", settings.workspace_bytes)
    yield Part(f"{server.name}: CUDA context", CONTEXT_BYTES)
    left = max(0, settings.card_bytes - fixed)
    yield Part(f"{server.name}: {share} of what those leave (free_gpu_memory_fraction)", round(share * left))


def _free_fraction(server: Server, model_yaml: str) -> float:
    try:
        engine = YAML(typ="safe").load(model_yaml)
    except YAMLError as exc:
        raise ValueError(f"{server.name}: its model.yaml cannot be read: {exc}") from exc
    cache = engine.get("kv_cache_config") if isinstance(engine, dict) else None
    written = cache.get("free_gpu_memory_fraction") if isinstance(cache, dict) else None
    share = _fraction(f"{server.name}: free_gpu_memory_fraction", None if written is None else str(written))
    return FREE_FRACTION if share is None else share


def _zoo(server: Server, configs: Configs) -> Iterator[Part]:
    yield Part(f"{server.name}: CUDA context", CONTEXT_BYTES)
    yield Part(f"{server.name}: Triton's pool (cuda-memory-pool-byte-size)", _pool_bytes(server))
    for model, config in configs.items():
        instances, limit = _gpu_instances(config), _limit(server, model, config)
        if instances and limit:
            told = f"{instances} x {_gib(limit)}" if instances > 1 else "gpu_mem_limit"
            yield Part(f"{server.name}: {model} ({told})", instances * (limit + SESSION_BYTES))


def _without_limit(server: Server, configs: Configs) -> Iterator[str]:
    for model, config in configs.items():
        if _gpu_instances(config) and not _limit(server, model, config):
            yield f"{server.name}: {model} runs on the card and has no gpu_mem_limit among its parameters"


def _gpu_instances(config: Any) -> int:
    """Sessions on the card. A kind that is not said means the card to a backend that can use it."""
    groups = config.instance_group
    if not groups:
        return int(config.backend in ON_CARD)
    kinds = type(groups[0])
    wanted = (kinds.KIND_GPU, kinds.KIND_AUTO) if config.backend in ON_CARD else (kinds.KIND_GPU,)
    return sum(max(1, group.count) for group in groups if group.kind in wanted)


def _limit(server: Server, model: str, config: Any) -> int:
    if config.backend != "onnxruntime" or "gpu_mem_limit" not in config.parameters:
        return 0
    written = config.parameters["gpu_mem_limit"].string_value
    if not written.isdecimal():
        raise ValueError(f"{server.name}: gpu_mem_limit of {model} is {written!r}, not a number of bytes")
    return int(written)


def _pool_bytes(server: Server) -> int:
    written = _flag(server.words, "cuda-memory-pool-byte-size")
    if written is None:
        return POOL_BYTES
    found = re.fullmatch(r"\d+:(\d+)", written)
    if found is None:
        raise ValueError(f"{server.name}: cuda-memory-pool-byte-size is {written!r}, and must be <card>:<bytes>")
    return int(found[1])


def _flag(words: Sequence[str], name: str) -> str | None:
    """The value of `--name=value` or `--name value`; the last one counts."""
    found = None
    for place, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") == f"--{name}":
            found = value if equals else next(iter(words[place + 1 : place + 2]), "")
    return found


def _fraction(what: str, written: str | None) -> float | None:
    if written is None:
        return None
    try:
        share = float(written)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise ValueError(f"{what} is {written!r}, and must be above 0 and at most 1")
    return share


def _bytes(environment: Mapping[str, str], name: str, default: int | None) -> int:
    written = environment.get(name, "").strip()
    if not written and default is not None:
        return default
    if not written.isdecimal() or not int(written):
        raise ValueError(f"{name} is {written!r}: it must be a number of bytes")
    return int(written)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB"
