"""Rules of model.yaml's keys: the release knows each of them, and takes what it is set to."""

from collections.abc import Iterator, Mapping
from typing import Any

from zooserve.leaf.release import Release
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean
from zooserve_ensembles.leaf_directory.reading import LeafDirectory

__all__ = ["RULES", "argument_findings"]

UNKNOWN = Rule("unknown-argument", Severity.ERROR, "The release has no such LLM argument: the engine does not start")
DOUBTFUL = Rule("doubtful-argument", Severity.WARNING, "Nobody has seen whether the release has this LLM argument")
TYPE = Rule("argument-type", Severity.ERROR, "An LLM argument has a value that the release does not take")
UNKNOWN_TRITON = Rule(
    "unknown-triton-config", Severity.ERROR, "The wrapper reads no such key of triton_config: it would be ignored"
)
MOE = Rule("moe-parallel", Severity.ERROR, "The experts' parallel sizes do not make up tensor_parallel_size")

RULES = (UNKNOWN, DOUBTFUL, TYPE, UNKNOWN_TRITON, MOE)

_OWN_RULE = {"triton_config", "decoupled"}
"""Top-level keys that `scopes` judges."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "number": (int, float),
    "bool": (bool,),
    "text": (str,),
    "list": (list,),
    "mapping": (Mapping,),
    "any": (object,),
}


def argument_findings(leaf: LeafDirectory, release: Release) -> Iterator[Finding]:
    """Every key of model.yaml against the release's record."""
    yield from _level(leaf, release, leaf.knobs.values, release.arguments, ())
    triton = leaf.knobs.get("triton_config")
    if isinstance(triton, Mapping):
        yield from _triton(leaf, release, triton)
    yield from _experts(leaf)


def _level(
    leaf: LeafDirectory, release: Release, values: Mapping[str, Any], known: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[Finding]:
    for key, value in values.items():
        here = (*path, str(key))
        if not path and key in _OWN_RULE:
            continue
        if key in known:
            yield from _value(leaf, release, value, known[key], here)
        elif ".".join(here) in release.doubtful:
            yield DOUBTFUL.at(
                leaf.knobs.place(*here), f"it is not recorded whether {release.release} has {_name(here)}"
            )
        else:
            near = did_you_mean(str(key), list(known))
            message = f"TensorRT-LLM {release.release} has no argument {_name(here)}. {near}".strip()
            yield UNKNOWN.at(leaf.knobs.place(*here), message)


def _value(leaf: LeafDirectory, release: Release, value: Any, kind: Any, path: tuple[str, ...]) -> Iterator[Finding]:
    if value is None:  # every argument's own default
        return
    if isinstance(kind, Mapping):
        if not isinstance(value, Mapping):
            yield TYPE.at(leaf.knobs.place(*path), f"{_name(path)} must be a mapping, and is {value!r}")
        elif "discriminated" in kind:
            yield from _discriminated(leaf, release, value, kind, path)
        else:
            yield from _level(leaf, release, value, kind, path)
    elif isinstance(kind, list):
        if value not in kind:
            yield TYPE.at(leaf.knobs.place(*path), f"{_name(path)} must be one of {', '.join(kind)}, and is {value!r}")
    elif not _is_of(value, kind):
        yield TYPE.at(leaf.knobs.place(*path), f"{_name(path)} must be {_said(kind)}, and is {value!r}")


def _discriminated(
    leaf: LeafDirectory, release: Release, value: Mapping[str, Any], kind: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[Finding]:
    chosen = value.get(kind["discriminated"])
    if not isinstance(chosen, str) or chosen not in kind["variants"]:
        said = f"is {chosen!r}" if chosen is not None else "is missing"
        names = ", ".join(kind["variants"])
        yield TYPE.at(leaf.knobs.place(*path, kind["discriminated"]), f"{kind['discriminated']} {said}: one of {names}")
        return
    yield from _level(leaf, release, value, {**kind["common"], **kind["variants"][chosen]}, path)


def _triton(leaf: LeafDirectory, release: Release, values: Mapping[str, Any]) -> Iterator[Finding]:
    known = release.wrapper.triton_config
    for key, value in values.items():
        place = leaf.knobs.place("triton_config", str(key))
        if key == "backend":  # `scopes` says where it belongs
            continue
        if key not in known:
            near = did_you_mean(str(key), list(known))
            elsewhere = f"{key} is an LLM argument: move it out of triton_config." if key in release.arguments else near
            yield UNKNOWN_TRITON.at(place, f"the wrapper of {release.release} does not read {key}. {elsewhere}".strip())
        elif not _is_of(value, known[key]):
            yield TYPE.at(place, f"triton_config.{key} must be {_said(known[key])}, and is {value!r}")


def _experts(leaf: LeafDirectory) -> Iterator[Finding]:
    sizes = {name: leaf.knobs.get(f"moe_{name}_parallel_size") for name in ("expert", "tensor", "cluster")}
    given = {name: size for name, size in sizes.items() if isinstance(size, int)}
    whole = leaf.knobs.get("tensor_parallel_size")
    whole = whole if isinstance(whole, int) else 1
    product = 1
    for size in given.values():
        product *= size
    is_wrong = product != whole if {"expert", "tensor"} <= set(given) else given and whole % max(product, 1)
    if is_wrong:
        told = " x ".join(f"moe_{name}_parallel_size {size}" for name, size in given.items())
        name = next(iter(given))
        yield MOE.at(
            leaf.knobs.place(f"moe_{name}_parallel_size"), f"{told} is not tensor_parallel_size, which is {whole}"
        )


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind in ("int", "number"):
        return False
    return isinstance(value, _TYPES[kind])


def _name(path: tuple[str, ...]) -> str:
    return ".".join(path)


def _said(kind: str) -> str:
    words = {"int": "a whole number", "number": "a number", "bool": "true or false", "text": "text"}
    return words.get(kind, f"a {kind}")
