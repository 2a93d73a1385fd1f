"""Embedding spaces: whose vectors may be compared, told by a fingerprint that is the same on every machine."""

import hashlib
import json
from collections.abc import Mapping

from zooserve.catalogue.agreement import space_model
from zooserve.catalogue.file import Catalogue
from zooserve.catalogue.model import Model

__all__ = ["fingerprint", "space_fingerprints"]

_DIGITS = 16


def fingerprint(model: Model, weights: str) -> str:
    """Of the space that this model spans. Vectors of two fingerprints mean nothing to each other.

    Name and version stand for what no file tells, such as pooling and normalisation: whoever changes those, raises the
    version. `weights` is the digest of the model's weights.
    """
    facts = {
        "model": model.name,
        "version": model.version,
        "kind": "sparse" if model.task == "sparse" else "dense",
        "dimensions": model.dimensions,
        "prompts": None if model.prompts is None else model.prompts.model_dump(),
        "weights": weights,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def space_fingerprints(catalogue: Catalogue, weights: Mapping[str, str]) -> dict[str, str]:
    """By the name of each enabled model that makes vectors, in its own space or in that of another entry."""
    entries = {model.name: model for model in (*catalogue.models, *catalogue.disabled)}
    spans = {model.name: space_model(model, entries) for model in catalogue}
    return {name: fingerprint(span, weights.get(span.name, "")) for name, span in spans.items() if span is not None}
