"""Which other entries of the catalogue share in a model's requests: a canary answers some, a shadow sees some."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from zooserve.catalogue.entry import Entry

__all__ = ["Canary", "Releases", "Shadow", "SplitBy"]

Share = Annotated[float, Field(gt=0, le=1, strict=True, allow_inf_nan=False)]
SplitBy = Literal["request", "caller"]


class Canary(Entry):
    """Another entry, that answers a share of the requests."""

    model: str
    """Its name in the catalogue."""
    share: Share
    """Of the requests that the model is asked, those that the canary answers."""
    by: SplitBy = "request"
    """`request` draws for each request by its id, `caller` for each caller by his key: he always gets the same one."""


class Shadow(Entry):
    """Another entry, that computes a share of the requests for nobody, once they have been answered."""

    model: str
    """Its name in the catalogue."""
    share: Share


class Releases(Entry):
    """The releases of a model beside the one that serves."""

    canary: Canary | None = None
    shadow: Shadow | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.canary is None and self.shadow is None:
            raise ValueError("name a `canary` or a `shadow`, or leave `releases` out")
        if self.canary is not None and self.shadow is not None and self.canary.model == self.shadow.model:
            raise ValueError(f"{self.canary.model} is both canary and shadow: it computes its requests already")
        return self
