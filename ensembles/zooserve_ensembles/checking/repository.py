"""A Triton repository as it lies on disk: every folder, every configuration with its lines, every version.

Reading never raises for what a repository may hold; what cannot be read is a finding.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from errno import ENOENT
from functools import cached_property
from os import strerror
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2

from zooserve_ensembles.backends import BACKENDS, ENSEMBLE, PLATFORMS, backend_of_file
from zooserve_ensembles.checking.findings import Place
from zooserve_ensembles.checking.locating import Block, Step
from zooserve_ensembles.checking.onnx_file import Graph, NotOnnx, read_graph

__all__ = [
    "Config",
    "Contract",
    "Model",
    "Repository",
    "Source",
    "Target",
    "Tensor",
    "Variant",
    "dtype_name",
    "fitting",
    "is_file",
    "is_there",
]


class Target(StrEnum):
    """Which Triton is to serve the repository."""

    EMBEDDED = "embedded"
    CONTAINER = "container"


Config = Any  # model_config_pb2.ModelConfig: the generated module brings no types


@dataclass(frozen=True)
class Tensor:
    """A tensor as a model declares it. `dims` is without the batch; None where only the weights' file tells it."""

    name: str
    dtype: str
    dims: tuple[int, ...] | None
    batched: bool
    optional: bool
    place: Place

    @property
    def kind(self) -> str:
        """Type and shape, such as `FP32 [-1, 384]`."""
        return f"{self.dtype} {list(self.dims)}" if self.dims is not None else self.dtype

    def fits(self, other: "Tensor") -> bool:
        """Whether Triton lets one feed the other: shapes equal without the batch, or with it; -1 fits anything."""
        if self.dims is None or other.dims is None:
            return True
        return fitting(self.dims, other.dims) or fitting(self.full, other.full)

    @property
    def full(self) -> tuple[int, ...]:
        """The shape with the batch."""
        return (-1, *(self.dims or ())) if self.batched else self.dims or ()


@dataclass(frozen=True)
class Contract:
    """A model's inputs or outputs by name. `open` where Triton may find more of them than we can read."""

    tensors: Mapping[str, Tensor]
    open: bool = False


@dataclass(frozen=True)
class Source:
    """A configuration file with its lines."""

    file: Path
    block: Block = field(default_factory=Block)

    def place(self, *path: Step) -> Place:
        """Where the field at `path` stands, or the nearest one around it."""
        return Place(self.file, self.block.line(path) or (1 if self.file.suffix == ".pbtxt" else 0))


@dataclass(frozen=True)
class Variant:
    """A hardware variant: configs/<name>.pbtxt."""

    config: Config
    source: Source


@dataclass(frozen=True)
class Model:
    """One folder of the repository that Triton takes for a model."""

    folder: Path
    config: Config
    source: Source
    versions: tuple[int, ...]
    variants: tuple[Variant, ...] = ()

    @property
    def name(self) -> str:
        """Its folder's name, which its configuration must repeat."""
        return self.folder.name

    @property
    def has_config(self) -> bool:
        """Whether it has a configuration file at all."""
        return self.source.file.suffix == ".pbtxt"

    @property
    def is_ensemble(self) -> bool:
        """Whether it is wired from other models."""
        return bool(self.config.platform == ENSEMBLE or self.config.HasField("ensemble_scheduling"))

    @cached_property
    def backend(self) -> str:
        """The backend that Triton takes for it; empty where nothing tells."""
        if self.is_ensemble:
            return ENSEMBLE
        named = self.config.backend or PLATFORMS.get(self.config.platform, "")
        if named or self.config.platform:
            return str(named)
        # Triton's last resort is a name of the form name.backend.
        return self._deduced_backend or self.name.rpartition(".")[2] * ("." in self.name)

    @cached_property
    def _deduced_backend(self) -> str:
        found = (backend_of_file(self.files(version)) for version in self.versions)
        return next((backend for backend in found if backend), "")

    @property
    def batched(self) -> bool:
        """Whether Triton puts a batch before its dimensions."""
        return bool(self.config.max_batch_size > 0)

    @cached_property
    def served(self) -> tuple[int, ...]:
        """The versions that its policy loads: the latest one where it has none."""
        policy = self.config.version_policy
        if policy.HasField("all"):
            return self.versions
        if policy.HasField("specific"):
            return tuple(version for version in self.versions if version in policy.specific.versions)
        return self.versions[-max(policy.latest.num_versions, 1) :]

    def files(self, version: int) -> tuple[str, ...]:
        """The names in a version's folder, sorted."""
        try:
            return tuple(sorted(path.name for path in self.version_folder(version).iterdir()))
        except OSError:
            return ()

    def version_folder(self, version: int) -> Path:
        """Where a version's files lie."""
        return self.folder / str(version)

    @cached_property
    def inputs(self) -> Contract:
        """What it takes."""
        return self._contract("input")

    @cached_property
    def outputs(self) -> Contract:
        """What it gives."""
        return self._contract("output")

    def graph(self, version: int) -> Graph | None:
        """The ONNX graph of a version; None where it is no ONNX model, or its file cannot be read."""
        opened = self.opened(version)
        return opened if isinstance(opened, Graph) else None

    def opened(self, version: int) -> Graph | NotOnnx | OSError | None:
        """The ONNX graph of a version, or what went wrong; None where the model has another backend."""
        return self._opened.get(version)

    @cached_property
    def _opened(self) -> Mapping[int, Graph | NotOnnx | OSError]:
        if self.backend != "onnxruntime":
            return {}
        return {version: _opened(self.onnx_file(version)) for version in self.versions}

    def onnx_file(self, version: int) -> Path:
        """Where the ONNX model of a version is; the native backend takes a folder of that name too."""
        file = self.version_folder(version) / (self.weights or "model.onnx")
        return file / file.name if is_there(file) and file.is_dir() else file

    @property
    def weights(self) -> str:
        """The file name that the configuration asks for, empty where it leaves that to the backend."""
        return str(self.config.default_model_filename)

    def _contract(self, side: str) -> Contract:
        declared = list(getattr(self.config, side))
        tensors = {
            entry.name: Tensor(
                entry.name,
                dtype_name(entry.data_type),
                tuple(entry.dims),
                self.batched,
                bool(getattr(entry, "optional", False)),
                self.source.place((side, index), "name"),
            )
            for index, entry in enumerate(declared)
        }
        if self.is_ensemble:
            return Contract(tensors)
        if not declared:
            return self._completed(side)
        return Contract(tensors, open=self._completes_itself)

    def _completed(self, side: str) -> Contract:
        graph = self.graph(self.served[-1]) if self.served else None
        if graph is None:
            return Contract({}, open=self._may_complete)
        found = graph.inputs if side == "input" else graph.outputs
        place = self.source.place()
        return Contract({each.name: Tensor(each.name, each.dtype, None, False, False, place) for each in found})  # noqa: FBT003

    @property
    def _may_complete(self) -> bool:
        """Whether something that we do not read may declare what the configuration leaves out."""
        if self.backend == "python":
            return self._completes_itself or not any(self.files(version) for version in self.served)
        return self.backend not in BACKENDS or BACKENDS[self.backend].completes

    @cached_property
    def _completes_itself(self) -> bool:
        if self.backend != "python":
            return False
        files = [self.version_folder(version) / (self.weights or "model.py") for version in self.served]
        return any("auto_complete_config" in _text_of(file) for file in files)


@dataclass(frozen=True)
class Repository:
    """The models that could be read, and the names of those that could not."""

    root: Path
    models: Mapping[str, Model]
    unreadable: frozenset[str] = frozenset()
    is_house: bool = False
    """Whether it is our zoo, whose models keep more rules than Triton's."""
    target: Target | None = None
    fetched: frozenset[Path] = frozenset()
    """Files that `zooserve fetch` places, relative to the root: a missing one is no fault of the repository."""

    @property
    def ensembles(self) -> Sequence[Model]:
        """The models that are wired from others."""
        return [model for model in self.models.values() if model.is_ensemble]

    @property
    def stages(self) -> Sequence[Model]:
        """The models that run by themselves."""
        return [model for model in self.models.values() if not model.is_ensemble]

    def users(self, name: str) -> Iterator[tuple[Model, int]]:
        """Every ensemble's step that runs the model of this name."""
        for ensemble in self.ensembles:
            for index, step in enumerate(ensemble.config.ensemble_scheduling.step):
                if step.model_name == name:
                    yield ensemble, index


def fitting(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes may be the same: a size of -1 is only known at run time."""
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))


def dtype_name(number: int) -> str:
    """A tensor type as it is written in a configuration, without its prefix."""
    if number not in model_config_pb2.DataType.values():
        return str(number)  # the text format takes any number for an enum
    return str(model_config_pb2.DataType.Name(number)).removeprefix("TYPE_")


def is_there(path: Path) -> bool:
    """Whether a file or folder is there, by a name that a configuration gives: nothing has one that is too long."""
    try:
        return path.exists()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Whether it is a file that can be read to its end, no folder and no pipe."""
    return is_there(path) and path.is_file()


def _opened(file: Path) -> Graph | NotOnnx | OSError:
    if is_there(file) and not is_file(file):
        return NotOnnx("it is no file")
    if not is_there(file):
        return FileNotFoundError(ENOENT, strerror(ENOENT))
    try:
        return read_graph(file)
    except (NotOnnx, OSError) as exc:
        return exc


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace") if is_file(file) else ""
    except OSError:
        return ""
