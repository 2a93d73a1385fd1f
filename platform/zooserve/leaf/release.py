"""What a release of TensorRT-LLM and its Triton wrapper take, as recorded in `trtllm/`: tensors, keys, arguments."""

from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from zooserve.leaf.contract import INPUTS, Tensor

__all__ = ["Release", "Wrapper", "known_releases", "load_release"]

_RECORDS = Path(__file__).parent / "trtllm"

ArgumentType = Literal["int", "number", "bool", "text", "list", "mapping", "any"]
Words = Annotated[list[str], Field(min_length=1)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Wrapper(_Record):
    """The Triton model of a release: NVIDIA's config.pbtxt, model.py and helpers.py."""

    lacks: tuple[str, ...]
    """Inputs of the newest contract that it does not read."""
    triton_config: Mapping[str, ArgumentType]
    """The keys that it reads of `triton_config`."""
    several_instances: bool
    """Whether it gives each instance GPUs of its own, by `gpu_device_ids`."""
    has: tuple[str, ...]
    """Words of its model.py, by which it is told from another release's."""
    has_not: tuple[str, ...]
    """Words that only other releases' model.py has."""


class Release(_Record):
    """One release, with where it was read."""

    release: str
    container: str | None
    """The tag of NVIDIA's Triton image that carries it; None where none did when it was recorded."""
    sources: Annotated[tuple[str, ...], Field(min_length=1)]
    wrapper: Wrapper
    arguments: Mapping[str, Any]
    """LLM arguments: a type, the words that are taken, or a mapping of the arguments inside."""
    doubtful: tuple[str, ...] = ()
    """Arguments that it may have: only one of the sources around it does. Dotted where they are inside another."""

    @cached_property
    def inputs(self) -> Mapping[str, Tensor]:
        """What its wrapper reads of the contract's inputs."""
        return {name: tensor for name, tensor in INPUTS.items() if name not in self.wrapper.lacks}


def known_releases() -> list[str]:
    """The recorded releases, the oldest first."""
    return sorted((path.stem for path in _RECORDS.glob("*.yaml")), key=_numbers)


@cache  # part of the package: it does not change while a process runs
def load_release(release: str) -> Release:
    """The record of a release. Raises LookupError naming those that are recorded."""
    from ruamel.yaml import YAML

    if release not in known_releases():
        raise LookupError(f"release {release} is not recorded; known: {', '.join(known_releases())}")
    path = _RECORDS / f"{release}.yaml"
    return Release.model_validate(YAML(typ="safe").load(path.read_text(encoding="utf-8")))


def _numbers(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]
