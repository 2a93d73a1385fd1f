"""What is wrong between entries of the catalogue that are each right: releases that do not fit, spaces that differ."""

import difflib
from collections.abc import Iterator, Mapping, Sequence

from zooserve.catalogue.model import Limits, Model, Task

__all__ = ["Location", "contradictions", "space_model"]

Location = tuple[int | str, ...]
Fault = tuple[Location, str]

_VECTORS: tuple[Task, ...] = ("embed", "rag_query", "sparse")
_MIRRORED: tuple[Task, ...] = ("embed", "rerank", "classify")


def contradictions(models: Sequence[Model]) -> Iterator[Fault]:
    """Each fault, and where in the file it stands; of spaces first, since releases are held against them."""
    entries = {model.name: model for model in models}
    for of in (_of_space, _of_releases):
        for index, model in enumerate(models):
            for place, message in of(model, entries):
                yield ("models", index, *place), message


def space_model(model: Model, entries: Mapping[str, Model]) -> Model | None:
    """The entry in whose embedding space this model's vectors are, mostly itself; None where it makes no vectors."""
    if model.task not in _VECTORS:
        return None
    return model if model.space is None else entries.get(model.space)


def _of_space(model: Model, entries: Mapping[str, Model]) -> Iterator[Fault]:
    if model.space is not None and (fault := _space_fault(model, model.space, entries)):
        yield ("space",), fault


def _space_fault(model: Model, name: str, entries: Mapping[str, Model]) -> str | None:
    if model.task not in _VECTORS:
        return f"a model of task {model.task} makes no vectors"
    if name == model.name:
        return "that is this model itself: leave `space` out"
    other = entries.get(name)
    if other is None:
        return _no_entry(name, entries)
    if other.task not in _VECTORS or (other.task == "sparse") is not (model.task == "sparse"):
        return f"{name} is a model of task {other.task}, whose vectors are of another kind"
    if other.space is not None:
        return f"{name} is itself in the space of {other.space}: name that"
    if other.dimensions != model.dimensions:
        return f"{name} has {other.dimensions} dimensions and {model.name} {model.dimensions}"
    if model.task == other.task and other.prompts != model.prompts:
        return f"{name} has other `prompts`, so that its vectors are others"
    return None


def _of_releases(model: Model, entries: Mapping[str, Model]) -> Iterator[Fault]:
    if model.releases is None:
        return
    if canary := model.releases.canary:
        place = ("releases", "canary", "model")
        if fault := _no_release(model, canary.model, entries) or _no_canary(model, entries[canary.model], entries):
            yield place, fault
    if shadow := model.releases.shadow:
        place = ("releases", "shadow", "model")
        if fault := _no_release(model, shadow.model, entries) or _no_shadow(model):
            yield place, fault


def _no_release(model: Model, name: str, entries: Mapping[str, Model]) -> str | None:
    """Why the entry of this name cannot take this model's requests."""
    if name == model.name:
        return "that is this model itself; a release is another entry"
    other = entries.get(name)
    if other is None:
        return _no_entry(name, entries)
    if other.task != model.task:
        return f"{name} is a model of task {other.task}, not {model.task}"
    if other.modality != model.modality:
        return f"{name} takes items of modality {other.modality}, not {model.modality}"
    if other.releases is not None:
        return f"{name} has `releases` of its own: a release of a release would get nobody's requests"
    if narrower := _narrower(model.limits, other.limits):
        return f"{name} takes less than {model.name}: its `limits.{narrower}` must be as high at least"
    return None


def _narrower(serving: Limits, release: Limits) -> str | None:
    """The first bound of the release that would refuse what the serving one takes."""
    for name in Limits.model_fields:
        bound, served = getattr(release, name), getattr(serving, name)
        if bound is not None and (served is None or bound < served):
            return name
    return None


def _no_canary(model: Model, canary: Model, entries: Mapping[str, Model]) -> str | None:
    """Why its answers cannot stand for those of this model."""
    if model.task == "classify" and _labelled(canary) != _labelled(model):
        return f"{canary.name} has other labels, or is not `exclusive` alike: callers could not tell whose they got"
    if model.task == "chat" and (lacking := model.chat_backend.features - canary.chat_backend.features):
        return f"the backend of {canary.name} lacks {', '.join(sorted(lacking))}, which {model.name} has"
    if model.task in _VECTORS:
        return _no_canary_of_vectors(model, canary, entries)
    return None


def _no_canary_of_vectors(model: Model, canary: Model, entries: Mapping[str, Model]) -> str | None:
    if _space_name(model) != _space_name(canary):
        return (
            f"{canary.name} is an embedding space of its own, and queries are never split between spaces: vectors "
            "of one mean nothing in the other. Make it a `shadow`, or say `space` where its vectors are the same"
        )
    if model.encoder is not None and canary.encoder is None:
        return f"{canary.name} has no `encoder` for the token ids that {model.name} takes"
    if model.long_text is not None and (
        canary.long_text is None or canary.long_text.max_tokens < model.long_text.max_tokens
    ):
        return f"{canary.name} has no `long_text` for texts as long as {model.name} takes"
    return None


def _no_shadow(model: Model) -> str | None:
    if model.task in _MIRRORED:
        return None
    if model.task == "chat":
        return "chats are not mirrored: a shadow would generate every answer a second time. Make it a `canary`"
    return f"requests to models of task {model.task} are not mirrored; those of {', '.join(_MIRRORED)} are"


def _space_name(model: Model) -> str:
    return model.space or model.name


def _labelled(model: Model) -> tuple[object, ...]:
    """What the labels are, as far as the file tells: those of a `labels_file` are compared once it has been read."""
    return (model.labels if model.labels_file is None else None, model.exclusive)


def _no_entry(name: str, entries: Mapping[str, Model]) -> str:
    owner = next((model.name for model in entries.values() if name in model.aliases), None)
    if owner is not None:
        return f"{name!r} is an alias of {owner}: name the entry itself"
    nearest = " or ".join(difflib.get_close_matches(name[:100], list(entries), n=3, cutoff=0.3))
    advice = f"Did you mean {nearest}?" if nearest else f"It has {', '.join(entries)}."
    return f"the catalogue has no entry {name[:100]!r}. {advice}"
