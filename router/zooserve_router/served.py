"""What is served, told to the metrics: each model with its weights, whether it is ready, and what its releases get."""

from collections.abc import Mapping

from zooserve.catalogue import Catalogue, Model
from zooserve_observability.metrics import RouterMetrics
from zooserve_router.readiness import Readiness
from zooserve_router.releases import ReleasePolicy
from zooserve_router.spaces import Spaces

__all__ = ["tell_what_is_served"]

_DIGITS = 12


def tell_what_is_served(
    catalogue: Catalogue,
    weights: Mapping[str, str],
    readiness: Readiness,
    releases: ReleasePolicy,
    spaces: Spaces,
    metrics: RouterMetrics,
) -> None:
    """Once, at the start; readiness and shares again whenever a model's readiness changes."""

    def changed(model: Model, ready: bool) -> None:
        metrics.found_ready(model.name, str(model.version), ready)
        for labels, share in releases.shares():
            metrics.releases.share(labels, share)

    for model in catalogue:
        version = str(model.version)
        metrics.serves(model.name, version, model.task, model.runs_on, weights.get(model.name, "")[:_DIGITS])
        if spaces.of(model) is not None:
            metrics.spans_space(model.name, version)
        _tell_of_no_requests(model, metrics)
        changed(model, readiness.is_ready(model.name))
    for labels, _ in releases.shares():
        metrics.releases.known(labels)
    readiness.changed = changed


def _tell_of_no_requests(model: Model, metrics: RouterMetrics) -> None:
    """Put the series of its requests there at 0."""
    version = str(model.version)
    classes = ("interactive", "bulk") if model.runs_on == "zoo" else ("interactive",)
    if model.task == "chat":
        metrics.may_be_asked(model.name, version, classes, ("input", "output"))
        metrics.chat.may_be_asked((model.name, version, "interactive"))
    else:
        metrics.may_be_asked(model.name, version, classes, ("input",))
