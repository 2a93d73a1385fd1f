"""A generated model: the contract that pipelines see, and all else that its configuration says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice

from zooserve.catalogue import SloClass
from zooserve_ensembles.pipeline import Dtype, Model, Tensor

__all__ = ["NICENESS", "Accelerator", "Member", "Warmup", "WarmupInput", "text_of", "zeros"]

NICENESS: Mapping[SloClass, int] = {"interactive": 0, "bulk": 10}
"""How far each class stands back for others at the cores."""

PHRASE = "what people search for while the model is busy is a set of many small things"
"""Each word is one token of BERT's vocabulary and of XLM-R's."""


@dataclass(frozen=True)
class WarmupInput:
    """One input of a warm-up request: zeros of that shape, or the content of a file."""

    tensor: Tensor
    content: bytes | None = None


@dataclass(frozen=True)
class Warmup:
    """A request that Triton makes before it calls the model ready."""

    name: str
    inputs: tuple[WarmupInput, ...]
    batch_size: int = 1

    @property
    def files(self) -> Mapping[str, bytes]:
        """What lies in the model's folder `warmup`, by name."""
        return {self.file_of(given): given.content for given in self.inputs if given.content is not None}

    def file_of(self, given: WarmupInput) -> str:
        """The file that an input's content is read from."""
        several = sum(each.content is not None for each in self.inputs) > 1
        return f"{self.name}_{given.tensor.name}" if several else self.name


@dataclass(frozen=True)
class Accelerator:
    """What runs a graph on a GPU in the place of plain CUDA, and its settings."""

    name: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Member(Model):
    """A model whose files are rendered. `backend` "python" with a `stage` runs `zooserve_ensembles.stages.<stage>`."""

    summary: str
    backend: str
    stage: str = ""
    stage_summary: str = ""
    """What the stage's `model.py` says of itself."""
    ragged: bool = False
    """Whether requests of unequal length may share a batch: for every input that varies."""
    on_gpu: bool = False
    gpus: tuple[int, ...] = ()
    """The cards, as the server's container numbers them; none named is all of them."""
    instances: int = 1
    """How many run at once, on each of its cards."""
    profiles: tuple[int, ...] = ()
    """The optimization profiles of a TensorRT engine that each instance opens."""
    accelerators: tuple[Accelerator, ...] = ()
    threads: int | None = None
    """ONNX Runtime's threads within one operator; 0 is one for each core."""
    niceness: int = 0
    run_elements: int | None = None
    """Rows x tokens of one run of the graph (`platform/triton-backends/onnxruntime`)."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Whatever else the backend or the stage reads."""
    response_cache: bool = False
    """Whether Triton may answer a repeated request from its cache, where the server has one."""
    warmups: tuple[Warmup, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Comments, by the field of the configuration or the parameter that they stand above."""
    variants: Mapping[str, "Member"] = field(default_factory=dict)
    """What `configs/<name>.pbtxt` says instead, for `--model-config-name=<name>`."""


def zeros(tensor: Tensor, length: int) -> WarmupInput:
    """That input with its varying axes at a length, all zero."""
    dims = tuple(length if size == -1 else size for size in tensor.dims)
    return WarmupInput(Tensor(tensor.name, tensor.dtype, dims))


def text_of(words: int) -> WarmupInput:
    """A `text` input of so many short English words, as a file of Triton: its length before it."""
    text = " ".join(islice(cycle(PHRASE.split()), words)).encode()
    return WarmupInput(Tensor("text", Dtype.STRING, (1,)), len(text).to_bytes(4, "little") + text)
