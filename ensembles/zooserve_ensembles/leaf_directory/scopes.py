"""Rules of the two scopes: what Triton's wrapper reads, and what the engine reads, each in its place."""

from collections.abc import Iterator

from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.leaf_directory.reading import LeafDirectory

__all__ = ["RULES", "scope_findings"]

DECOUPLED_PLACE = Rule(
    "decoupled-at-top-level", Severity.ERROR, "`decoupled` stands among the LLM arguments: it belongs in triton_config"
)
NOT_DECOUPLED = Rule("not-decoupled", Severity.ERROR, "`decoupled` is false or missing: the leaf could not stream")
BACKEND_PBTXT = Rule(
    "backend-in-pbtxt", Severity.ERROR, "config.pbtxt names the engine: its backend is python, model.yaml's pytorch"
)
BACKEND_TRITON = Rule(
    "backend-in-triton-config", Severity.ERROR, "`backend` stands in triton_config: it is an LLM argument"
)
BACKEND = Rule("engine-backend", Severity.ERROR, "model.yaml's `backend` is missing, or not pytorch")
BATCHES = Rule(
    "wrapper-batches",
    Severity.ERROR,
    "max_batch_size above 0 in Triton's scope: the wrapper takes one prompt a request",
)
DYNAMIC = Rule(
    "dynamic-batching", Severity.ERROR, "A dynamic_batching block: the engine batches in flight, the wrapper takes one"
)
TRITON_CONFIG = Rule(
    "triton-config-missing", Severity.ERROR, "model.yaml has no triton_config: the wrapper does not load"
)

RULES = (DECOUPLED_PLACE, NOT_DECOUPLED, BACKEND_PBTXT, BACKEND_TRITON, BACKEND, BATCHES, DYNAMIC, TRITON_CONFIG)


def scope_findings(leaf: LeafDirectory) -> Iterator[Finding]:
    """Each key of the wrong scope, and each that is missing in the right one."""
    yield from _pbtxt(leaf)
    if leaf.is_embedded:
        yield from _embedded(leaf)
        return
    yield from _decoupled(leaf)
    yield from _backend(leaf)
    batch = leaf.knobs.get("triton_config", "max_batch_size")
    if isinstance(batch, int) and batch > 0:
        place = leaf.knobs.place("triton_config", "max_batch_size")
        yield BATCHES.at(place, f"triton_config.max_batch_size is {batch}: make it 0; the engine's own stands above it")


def _pbtxt(leaf: LeafDirectory) -> Iterator[Finding]:
    place = leaf.source.place
    if leaf.config.backend != "python":
        said = f'backend is "{leaf.config.backend}"' if leaf.config.backend else "it names no backend"
        yield BACKEND_PBTXT.at(place("backend"), f'{said}: make it backend: "python"; pytorch stands in 1/model.yaml')
    if leaf.config.max_batch_size > 0:
        yield BATCHES.at(place("max_batch_size"), f"max_batch_size is {leaf.config.max_batch_size}: make it 0")
    if leaf.config.HasField("dynamic_batching"):
        yield DYNAMIC.at(place("dynamic_batching"), "remove dynamic_batching: it would join requests that cannot be")


def _embedded(leaf: LeafDirectory) -> Iterator[Finding]:
    if not leaf.config.model_transaction_policy.decoupled:
        place = leaf.source.place("model_transaction_policy")
        yield NOT_DECOUPLED.at(place, "say model_transaction_policy { decoupled: true }")


def _decoupled(leaf: LeafDirectory) -> Iterator[Finding]:
    if leaf.knobs.has("decoupled"):
        yield DECOUPLED_PLACE.at(leaf.knobs.place("decoupled"), "move `decoupled` under triton_config")
    if not leaf.knobs.has("triton_config"):
        yield TRITON_CONFIG.at(leaf.knobs.place(), "add triton_config with decoupled: true and max_batch_size: 0")
        return
    for key in ("decoupled", "max_batch_size"):
        if not leaf.knobs.has("triton_config", key):
            place = leaf.knobs.place("triton_config")
            yield TRITON_CONFIG.at(place, f"triton_config has no `{key}`, which the wrapper reads without a default")
    if leaf.knobs.get("triton_config", "decoupled") is False:
        place = leaf.knobs.place("triton_config", "decoupled")
        yield NOT_DECOUPLED.at(place, "triton_config.decoupled is false: make it true, or nothing can be streamed")
    policy = leaf.config.model_transaction_policy
    if leaf.config.HasField("model_transaction_policy") and not policy.decoupled:
        place = leaf.source.place("model_transaction_policy")
        yield NOT_DECOUPLED.at(place, "decoupled is false here: the wrapper cannot change it, make it true")


def _backend(leaf: LeafDirectory) -> Iterator[Finding]:
    if leaf.knobs.has("triton_config", "backend"):
        place = leaf.knobs.place("triton_config", "backend")
        yield BACKEND_TRITON.at(place, "move `backend` out of triton_config, to the LLM arguments")
    backend = leaf.knobs.get("backend")
    if backend != "pytorch":
        said = f"`backend` is {backend}" if backend is not None else "it has no `backend`"
        yield BACKEND.at(leaf.knobs.place("backend"), f"{said}: say backend: pytorch, which needs no engine built")
