"""What endpoints share: made once by `app`, found on the app's state."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from zooserve.catalogue import Catalogue
from zooserve.settings import Settings
from zooserve_observability.metrics import RouterMetrics
from zooserve_router.chat.service import ChatService
from zooserve_router.classification import Classifier
from zooserve_router.context import RequestContext
from zooserve_router.dispatch import Zoo, ZooDispatch
from zooserve_router.embedding import Embedder
from zooserve_router.lineup import Lineup
from zooserve_router.querying import QueryReader
from zooserve_router.readiness import Readiness
from zooserve_router.releases import ReleasePolicy
from zooserve_router.reranking import Reranker
from zooserve_router.shadows import Shadows
from zooserve_router.spaces import Spaces
from zooserve_router.sparse import SparseEmbedder
from zooserve_router.vocabulary import Vocabulary

__all__ = ["Services", "context_of", "services_of"]


@dataclass(frozen=True)
class Services:
    """The wired parts."""

    settings: Settings
    catalogue: Catalogue
    metrics: RouterMetrics
    readiness: Readiness
    releases: ReleasePolicy
    shadows: Shadows
    spaces: Spaces
    zoo: Zoo
    vocabularies: Mapping[str, Vocabulary]
    dispatch: ZooDispatch
    embedder: Embedder
    reranker: Reranker
    classifier: Classifier
    query_reader: QueryReader
    sparse_embedder: SparseEmbedder
    chat: ChatService

    def lineup(self, context: RequestContext) -> Lineup:
        """The catalogue as this request meets it."""
        return Lineup(self.catalogue, context, self.releases, self.spaces)


def services_of(request: Request) -> Services:
    """The services of the app that this request came to."""
    services: Services = request.app.state.services
    return services


def context_of(request: Request) -> RequestContext:
    """The context that the middleware gave this request."""
    context: RequestContext = request.scope["state"]["context"]
    return context
