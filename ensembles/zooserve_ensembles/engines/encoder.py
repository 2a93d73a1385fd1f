"""The encoder that a plan is to be built of: its configuration and its graph, held against each other first."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from zooserve.errors import EngineRefused
from zooserve_ensembles.engines.config_text import BadConfig, Message, read_config
from zooserve_ensembles.engines.plain_graph import GraphTensor, PlainGraph, plain_graph
from zooserve_ensembles.engines.wire import BadWire

__all__ = ["VARIANT", "Encoder", "config_of", "read_encoder", "versions_of"]

VARIANT = "plan"
"""The configuration that serves plans: `configs/plan.pbtxt`, chosen with --model-config-name=plan."""
_IDS = ("input_ids", "attention_mask")


@dataclass(frozen=True)
class Encoder:
    """What is built, in terms of Triton's configuration."""

    model: str
    version: str
    folder: Path
    """Of the version: model.onnx is here, and plans will be."""
    max_batch_size: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    vector: str
    """The output that the golden gate compares."""
    buckets: tuple[int, ...]

    @property
    def onnx(self) -> Path:
        """The graph."""
        return self.folder / "model.onnx"

    def digest(self) -> str:
        """The SHA-256 of the graph's file."""
        with self.onnx.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def graph(self) -> PlainGraph:
        """The graph in standard operators. Raises EngineRefused where it is not what the configuration says."""
        try:
            graph = plain_graph(self.onnx.read_bytes())
        except BadWire as exc:
            raise EngineRefused(f"{self.onnx} is no ONNX model: {exc}. Run `zooserve fetch`.") from exc
        if graph.foreign:
            raise EngineRefused(
                f"{self.model} uses {', '.join(graph.foreign)}, which TensorRT does not read. Build of a graph in "
                "standard operators, or serve this one with the variant gpu."
            )
        _same_names(self.model, "input", self.inputs, graph.inputs, exact=True)
        _same_names(self.model, "output", self.outputs, graph.outputs, exact=False)
        return graph


def versions_of(repository: Path, model: str) -> list[str]:
    """The versions of a model, the newest last."""
    folder = repository / model
    if not folder.is_dir():
        raise EngineRefused(f"{repository} holds no model {model}.")
    return sorted((path.name for path in folder.iterdir() if path.name.isdecimal() and path.is_dir()), key=int)


def read_encoder(repository: Path, model: str, version: str | None = None) -> Encoder:
    """The model's newest version, or that one. Raises EngineRefused where no plan can be built of it."""
    versions = versions_of(repository, model)
    if not versions or (version is not None and version not in versions):
        raise EngineRefused(f"{repository / model} has no version {version or 'at all'}; it has {versions or 'none'}.")
    config = config_of(repository / model)
    folder = repository / model / (version or versions[-1])
    if not (folder / "model.onnx").is_file():
        raise EngineRefused(f"{folder / 'model.onnx'} is not there: run `zooserve fetch`, or place the export there.")
    inputs = tuple(_declared(message) for message in config.messages("input"))
    outputs = tuple(_declared(message) for message in config.messages("output"))
    vector = _vector(model, inputs, outputs)
    return Encoder(
        model,
        folder.name,
        folder,
        _max_batch_size(model, config),
        tuple(tensor.name for tensor in inputs),
        tuple(tensor.name for tensor in outputs),
        vector,
        _buckets(model, config),
    )


def config_of(folder: Path) -> Message:
    """The model's configuration for plans where there is one, else its default. Raises EngineRefused."""
    variant = folder / "configs" / f"{VARIANT}.pbtxt"
    file = variant if variant.is_file() else folder / "config.pbtxt"
    try:
        return read_config(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise EngineRefused(f"{file} cannot be read: {exc.strerror}.") from exc
    except (BadConfig, UnicodeDecodeError) as exc:
        raise EngineRefused(f"{file} is no configuration: {exc}.") from exc


def _declared(message: Message) -> GraphTensor:
    dims = tuple(int(size) for size in message.texts("dims"))
    return GraphTensor(message.text("name"), message.text("data_type").removeprefix("TYPE_"), dims)


def _vector(model: str, inputs: Sequence[GraphTensor], outputs: Sequence[GraphTensor]) -> str:
    """The one output that is a vector a text. Raises EngineRefused where the model is no encoder of texts."""
    ids = all(tensor.dtype == "INT64" and tensor.dims == (-1,) for tensor in inputs)
    floats = all(tensor.dtype == "FP32" for tensor in outputs)
    vectors = [tensor.name for tensor in outputs if len(tensor.dims) == 1 and tensor.dims[0] > 1]
    if {tensor.name for tensor in inputs} == set(_IDS) and ids and floats and len(vectors) == 1:
        return vectors[0]
    raise EngineRefused(
        f"{model} is no encoder of texts: a plan is built of a model that takes {' and '.join(_IDS)} (INT64 [-1]) and "
        f"gives one vector (FP32 [n]); this one takes {_listed(inputs)} and gives {_listed(outputs)}."
    )


def _max_batch_size(model: str, config: Message) -> int:
    size = int(config.text("max_batch_size", "0"))
    if size < 1:
        raise EngineRefused(f"{model} takes no batches (max_batch_size {size}); a plan's profiles are batches.")
    return size


def _buckets(model: str, config: Message) -> tuple[int, ...]:
    """The lengths that the configuration warms, which its tokenizer pads to. Raises EngineRefused."""
    lengths = []
    for warmup in config.messages("model_warmup"):
        dims = {tuple(entry.texts("dims")) for name, entry in warmup.mapped("inputs").items() if name in _IDS}
        if len(dims) != 1 or len(next(iter(dims))) != 1:
            raise EngineRefused(f"{model}'s warm-up {warmup.text('name')} does not say one length for its inputs.")
        lengths.append(int(next(iter(dims))[0]))
    if not lengths:
        raise EngineRefused(f"{model} warms no bucket, so nothing says which lengths to build for: add model_warmup.")
    buckets = tuple(sorted(set(lengths)))
    _same_profiles(model, config, buckets)
    return buckets


def _same_profiles(model: str, config: Message, lengths: Sequence[int]) -> None:
    """An instance group that names profiles must name one for each bucket, or Triton never uses the others."""
    wanted = [str(place) for place in range(len(lengths))]
    for group in config.messages("instance_group"):
        named = group.texts("profile")
        if named and named != wanted:
            raise EngineRefused(
                f"{model} warms {len(lengths)} buckets ({_numbers(lengths)}) and its instance group names the profiles "
                f"{', '.join(named)}: they must be {', '.join(wanted)}. Run `zooserve ensembles render`."
            )


def _same_names(model: str, kind: str, declared: Sequence[str], found: Sequence[GraphTensor], *, exact: bool) -> None:
    names = {tensor.name for tensor in found}
    missing = set(declared) - names
    if missing or (exact and names != set(declared)):
        raise EngineRefused(
            f"{model}'s configuration has the {kind}s {', '.join(declared)}, its graph {', '.join(sorted(names))}."
        )


def _listed(tensors: Iterable[GraphTensor]) -> str:
    return ", ".join(f"{tensor.name} {tensor.dtype} {list(tensor.dims)}" for tensor in tensors) or "nothing"


def _numbers(lengths: Iterable[int]) -> str:
    return ", ".join(map(str, lengths))
