"""Which release of a model answers a request, and which one sees it for nobody: drawn from what stays the same.

A draw is a hash of the model, the role and a key: a retry with the same request id meets the same release, a caller the
same one each time, on every replica and after every restart. Nothing is random, and nothing is remembered.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Literal

from zooserve.catalogue import Canary, Catalogue, Model
from zooserve_observability.release_metrics import ReleaseLabels
from zooserve_router.context import ANONYMOUS, RequestContext

__all__ = ["Drawn", "ReleasePolicy", "is_drawn", "point_of", "release_labels"]

Drawn = Literal["canary", "shadow"]
_POINTS = 2**64


def point_of(role: Drawn, model: str, key: str) -> float:
    """Where in [0, 1) this key falls among those of the model; the roles' points have nothing to do with each other."""
    digest = hashlib.blake2b(f"{role}\0{model}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / _POINTS


def is_drawn(role: Drawn, model: str, key: str, share: float) -> bool:
    """Whether this key is among the share. A larger share takes in all that a smaller one did."""
    return point_of(role, model, key) < share


def release_labels(model: Model) -> ReleaseLabels | None:
    """How a request is counted that this model answers; None where the model shares it with no release."""
    if model.release_of is not None:
        return model.release_of, model.name, str(model.version), "canary"
    if model.releases is not None:
        return model.name, model.name, str(model.version), "serving"
    return None


class ReleasePolicy:
    """What the catalogue says of releases, for those that are enabled and ready."""

    def __init__(self, catalogue: Catalogue, is_ready: Callable[[str], bool]) -> None:
        self._enabled = {model.name: model for model in catalogue}
        self._entries = self._enabled | {model.name: model for model in catalogue.disabled}
        self._answering = {asked.name: canary.answering_for(asked) for asked, canary in self._canaries()}
        self._is_ready = is_ready

    def answering(self, asked: Model, context: RequestContext) -> Model:
        """The model itself, or its canary if that is drawn: one that does not work is given nothing."""
        canary = asked.releases and asked.releases.canary
        if not canary or not self._works(canary.model):
            return asked
        drawn = is_drawn("canary", asked.name, _key(canary, context), canary.share)
        return self._answering[asked.name] if drawn else asked

    def shadow_of(self, answered: Model, request_id: str) -> Model | None:
        """Who is to compute this request once more, whoever answered it; None where it is not drawn, or not enabled."""
        asked = self._asked(answered)
        shadow = asked and asked.releases and asked.releases.shadow
        if not asked or not shadow or shadow.model not in self._enabled:
            return None
        return self._enabled[shadow.model] if is_drawn("shadow", asked.name, request_id, shadow.share) else None

    def shares(self) -> Iterator[tuple[ReleaseLabels, float]]:
        """What each release of each model is to get now: nothing, unless it is enabled and ready."""
        for model in self._enabled.values():
            if model.releases is None:
                continue
            canary, shadow = model.releases.canary, model.releases.shadow
            canary_share = canary.share if canary and self._works(canary.model) else 0.0
            yield (model.name, model.name, str(model.version), "serving"), 1.0 - canary_share
            if canary:
                yield (model.name, canary.model, self._version(canary.model), "canary"), canary_share
            if shadow:
                shadow_share = shadow.share if self._works(shadow.model) else 0.0
                yield (model.name, shadow.model, self._version(shadow.model), "shadow"), shadow_share

    def _canaries(self) -> Iterator[tuple[Model, Model]]:
        """Each enabled model that has an enabled canary, with that."""
        for model in self._enabled.values():
            if model.releases and (canary := model.releases.canary) and canary.model in self._enabled:
                yield model, self._enabled[canary.model]

    def _asked(self, answered: Model) -> Model | None:
        """The model whose request it was; None for one that asked for this release alone."""
        if answered.release_of is not None:
            return self._enabled[answered.release_of]
        return answered if answered.releases is not None else None

    def _works(self, name: str) -> bool:
        return name in self._enabled and self._is_ready(name)

    def _version(self, name: str) -> str:
        return str(self._entries[name].version) if name in self._entries else ""


def _key(canary: Canary, context: RequestContext) -> str:
    """Who names nobody is drawn for each request: there is no caller to whom it could be the same each time."""
    return context.caller if canary.by == "caller" and context.caller != ANONYMOUS else context.request_id
