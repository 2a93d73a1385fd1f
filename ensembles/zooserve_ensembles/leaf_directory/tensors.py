"""Rules of the tensors: config.pbtxt has the contract's, each with its type and shape, and no others."""

from collections.abc import Iterator, Mapping
from typing import Literal

from tritonclient.grpc import model_config_pb2

from zooserve.leaf.contract import INPUTS, OUTPUTS, Tensor
from zooserve.leaf.release import Release, known_releases, load_release
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean
from zooserve_ensembles.leaf_directory.reading import LeafDirectory

__all__ = ["RULES", "tensor_findings"]

MISSING = Rule("tensor-missing", Severity.ERROR, "config.pbtxt lacks a tensor of the contract")
UNKNOWN = Rule("tensor-unknown", Severity.ERROR, "config.pbtxt has a tensor that the contract has not")
DIFFERS = Rule("tensor-differs", Severity.ERROR, "A tensor has another type, other dims or another `optional`")
UNREAD = Rule(
    "tensor-unread", Severity.ERROR, "The release's wrapper does not read this input: what it asks for would be ignored"
)

RULES = (MISSING, UNKNOWN, DIFFERS, UNREAD)

Side = Literal["input", "output"]


def tensor_findings(leaf: LeafDirectory, release: Release | None) -> Iterator[Finding]:
    """config.pbtxt against the contract, as far as the wrapper's release goes."""
    inputs = INPUTS if leaf.is_embedded else (release or _nearest(leaf)).inputs
    yield from _side(leaf, "input", inputs, INPUTS, release)
    yield from _side(leaf, "output", OUTPUTS, OUTPUTS, release)


def _nearest(leaf: LeafDirectory) -> Release:
    """Where nobody says which release it is: the newest of those whose inputs differ least."""
    declared = {tensor.name for tensor in leaf.config.input}
    releases = [load_release(name) for name in reversed(known_releases())]
    return min(releases, key=lambda release: len(declared ^ set(release.inputs)))


def _side(
    leaf: LeafDirectory, side: Side, wanted: Mapping[str, Tensor], newest: Mapping[str, Tensor], release: Release | None
) -> Iterator[Finding]:
    declared = {tensor.name: (index, tensor) for index, tensor in enumerate(getattr(leaf.config, side))}
    for name, tensor in wanted.items():
        if name not in declared:
            yield MISSING.at(leaf.source.place(side), f"{side} {name} ({_kind(tensor)}) is missing")
    for name, (index, found) in declared.items():
        place = leaf.source.place((side, index), "name")
        if name in wanted:
            if difference := _difference(wanted[name], found):
                yield DIFFERS.at(leaf.source.place((side, index)), f"{side} {name}: {difference}")
        elif name in newest and release is not None:
            yield UNREAD.at(
                place, f"release {release.release} does not read {name}: remove it, or take a newer release"
            )
        else:
            yield UNKNOWN.at(place, f"the contract has no {side} {name}. {did_you_mean(name, list(wanted))}".strip())


def _difference(wanted: Tensor, found: object) -> str:
    kind = model_config_pb2.DataType.Name(found.data_type)  # type: ignore[attr-defined]
    dims = tuple(found.dims)  # type: ignore[attr-defined]
    optional = bool(getattr(found, "optional", False))
    told = []
    if kind != wanted.config_type:
        told.append(f"data_type is {kind}, the contract has {wanted.config_type}")
    if dims != wanted.dims:
        told.append(f"dims are {list(dims)}, the contract has {list(wanted.dims)}")
    if optional != wanted.optional:
        told.append(f"it must {'' if wanted.optional else 'not '}be optional")
    return "; ".join(told)


def _kind(tensor: Tensor) -> str:
    return f"{tensor.config_type} {list(tensor.dims)}"
