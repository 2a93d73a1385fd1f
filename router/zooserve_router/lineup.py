"""The catalogue as one request meets it: the model that a name means, in the release that answers this request."""

from dataclasses import dataclass

from zooserve.catalogue import Catalogue, Model, Task
from zooserve_router.context import RequestContext
from zooserve_router.dispatch import find_model, model_for
from zooserve_router.releases import ReleasePolicy
from zooserve_router.spaces import Spaces

__all__ = ["Lineup"]


@dataclass(frozen=True)
class Lineup:
    """Who may answer one request."""

    catalogue: Catalogue
    context: RequestContext
    releases: ReleasePolicy
    spaces: Spaces

    def model_for(self, name: str | None, task: Task) -> Model:
        """The model of this name for this task, or the task's first one, as `dispatch.model_for` finds it."""
        return self.answering(model_for(self.catalogue, name, task))

    def find_model(self, name: str, task: Task) -> Model:
        """The model of this name, as `dispatch.find_model` finds it."""
        return self.answering(find_model(self.catalogue, name, task))

    def answering(self, asked: Model) -> Model:
        """The release of this model that answers. Raises OtherEmbeddingSpace where the request insists on another.

        A canary is in the space of the model that it answers for: the catalogue has no other.
        """
        self.spaces.require(asked, self.context)
        return self.releases.answering(asked, self.context)
