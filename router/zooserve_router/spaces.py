"""Embedding spaces: every answer with vectors names its own, and a request may insist on one."""

from collections.abc import Mapping

from zooserve.catalogue import Model
from zooserve.errors import OtherEmbeddingSpace
from zooserve_observability.metrics import RouterMetrics
from zooserve_router.context import RequestContext

__all__ = ["SPACE_HEADER", "Spaces"]

SPACE_HEADER = "x-zooserve-embedding-space"
_SHOWN = 64


class Spaces:
    """The fingerprints of the models that make vectors, by their names."""

    def __init__(self, fingerprints: Mapping[str, str], metrics: RouterMetrics) -> None:
        self._fingerprints = fingerprints
        self._metrics = metrics

    def of(self, model: Model) -> str | None:
        """The fingerprint of the space in which this model's vectors are; None where it makes none."""
        return self._fingerprints.get(model.name)

    def require(self, model: Model, context: RequestContext) -> None:
        """Note the space that the request is answered in. Raises OtherEmbeddingSpace if it insists on another.

        What is asked of a model without vectors has no space, whatever header its client always sends.
        """
        served = self.of(model)
        if served is None:
            return
        context.record.space = served
        wanted = context.space
        if wanted is None or wanted == served:
            return
        context.record.runs(model, context.record.slo_class)
        self._metrics.space_mismatched(model.name, str(model.version))
        raise OtherEmbeddingSpace(
            f"The request insists on embedding space {wanted[:_SHOWN]!r}, and vectors of {model.public_name}@"
            f"{model.version} are in {served!r}: they cannot be compared. Ask the model that made the other vectors, "
            f"or embed those anew and send `{SPACE_HEADER}: {served}`.",
            param=SPACE_HEADER,
        )
