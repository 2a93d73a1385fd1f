"""Operations of several calls, each of them failing in turn: the same operation again completes what was begun."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import httpx
import pytest
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException

from zooserve import Chunk, Document
from zooserve.errors import SpaceMismatch, StoreUnavailable

A, B, C = "a" * 16, "b" * 16, "c" * 16
COSINE = models.Distance.COSINE
Step = Callable[[Any, Any], Any]


class Cutting:
    """A client whose call number `at` fails, before anything is done, or after it when the answer is lost."""

    def __init__(self, client: QdrantClient, at: int, *, after: bool) -> None:
        self._client = client
        self._at = at
        self._after = after
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._client, name)
        if not callable(real):
            return real

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls != self._at:
                return real(*arguments, **named)
            if self._after:
                real(*arguments, **named)
            raise ResponseHandlingException(httpx.ReadError("cut"))

        return call


def everything(qdrant: QdrantClient) -> Any:
    """All that a server has, in a form to compare."""
    held = sorted(one.name for one in qdrant.get_collections().collections)
    points = {name: sorted((str(r.id), r.payload) for r in qdrant.scroll(name, limit=100)[0]) for name in held}
    metadata = {name: qdrant.get_collection(name).config.metadata for name in held}
    return points, metadata, {one.alias_name: one.collection_name for one in qdrant.get_aliases().aliases}


def nothing(zoo: Any, qdrant: Any) -> None: ...


def two_documents(zoo: Any, qdrant: Any) -> None:
    zoo.collection("docs", client=qdrant).upsert([Document("d", ["one", "two"]), Chunk("seven", id=7)])


def reembedded(zoo: Any, qdrant: Any) -> None:
    """An older collection is still there, and a third of another name."""
    zoo.collection("docs", client=qdrant, model="embed_other").upsert(["old"])
    alias = models.DeleteAlias(alias_name="docs")
    qdrant.update_collection_aliases([models.DeleteAliasOperation(delete_alias=alias)])
    two_documents(zoo, qdrant)
    zoo.collection("docs-too", client=qdrant).upsert(["of others"])


def of_others(zoo: Any, qdrant: Any) -> None:
    qdrant.create_collection("docs", vectors_config=models.VectorParams(size=16, distance=COSINE))
    point = models.PointStruct(id=1, vector=zoo.embed("a duck")[0], payload={"text": "a duck"})
    qdrant.upsert("docs", [point])


def drop_and_say(docs: Any) -> None:
    docs.drop()


OPERATIONS: dict[str, tuple[Step, Callable[[Any], Any], dict[str, Any]]] = {
    "create": (nothing, lambda docs: docs.upsert([Document("d", ["one"])]), {}),
    "create hybrid": (nothing, lambda docs: docs.upsert(["one"]), {"sparse": "embed_sparse"}),
    "replace": (two_documents, lambda docs: docs.upsert([Document("d", ["two", "three"], {"lang": "en"})]), {}),
    "sync": (two_documents, lambda docs: docs.sync([Document("d", ["two"])]), {}),
    "delete": (two_documents, lambda docs: docs.delete(["d", 7]), {}),
    "adopt": (of_others, lambda docs: docs.search("a duck"), {"adopt": True}),
    "drop": (two_documents, drop_and_say, {}),
    "drop after re-embedding": (reembedded, drop_and_say, {}),
}


@pytest.mark.parametrize("after", [False, True], ids=["call lost", "answer lost"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_whatever_call_fails_the_same_again_completes_it(zoo, operation, after) -> None:
    prepare, operate, options = OPERATIONS[operation]

    def run(at: int) -> tuple[Any, int]:
        with closing(QdrantClient(":memory:")) as qdrant:
            prepare(zoo, qdrant)
            docs = zoo.collection("docs", client=qdrant, **options)
            store = docs._store()
            store._client = cutting = Cutting(qdrant, at, after=after)
            if at:
                with pytest.raises(StoreUnavailable, match="cut"):
                    operate(docs)
            operate(docs)
            return everything(qdrant), cutting.calls

    whole, calls = run(0)
    assert calls >= 3
    for at in range(1, calls + 1):
        assert run(at)[0] == whole, f"call {at} of {calls}"


def test_a_dropped_collection_is_gone_with_what_re_embeddings_left_and_does_not_come_back(zoo, served) -> None:
    with closing(QdrantClient(":memory:")) as qdrant:
        reembedded(zoo, qdrant)
        alias = models.CreateAlias(collection_name=f"docs-too--{A}", alias_name="another")
        qdrant.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
        docs = zoo.collection("docs", client=qdrant)
        assert docs.drop()
        assert {one.name for one in qdrant.get_collections().collections} == {f"docs-too--{A}"}
        assert not docs.drop()
        assert zoo.collection("docs", client=qdrant, model="embed_other").count() == 0


@pytest.mark.parametrize("left", ["alias", "collection"])
def test_the_half_that_an_earlier_drop_left_goes_with_the_next(zoo, left) -> None:
    with closing(QdrantClient(":memory:")) as qdrant:
        two_documents(zoo, qdrant)
        if left == "alias":
            qdrant._client.collections.pop(f"docs--{A}")
        else:
            qdrant._client.aliases.clear()
        docs = zoo.collection("docs", client=qdrant)
        assert docs.drop()
        assert not docs.drop()
        assert (qdrant.get_collections().collections, qdrant.get_aliases().aliases) == ([], [])
        assert docs.count() == 0


def test_a_collection_that_another_name_leads_to_stays(zoo) -> None:
    with closing(QdrantClient(":memory:")) as qdrant:
        two_documents(zoo, qdrant)
        alias = models.CreateAlias(collection_name=f"docs--{A}", alias_name="manuals")
        qdrant.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
        assert zoo.collection("manuals", client=qdrant).drop()
        assert zoo.collection("docs", client=qdrant).count() == 3


@pytest.mark.parametrize("options", [{"sparse": "embed_sparse"}, {"model": "embed_wide"}, {"text_key": "body"}])
def test_what_cannot_be_adopted_is_left_as_it_was(zoo, options) -> None:
    with closing(QdrantClient(":memory:")) as qdrant:
        of_others(zoo, qdrant)
        if "text_key" in options:
            other = models.PointStruct(id=2, vector=[1.0] + 15 * [0.0], payload={"body": "another model's"})
            qdrant.upsert("docs", [other])
        before = everything(qdrant)
        with pytest.raises(SpaceMismatch):
            zoo.collection("docs", client=qdrant, adopt=True, **options).count()
        assert everything(qdrant) == before


@pytest.mark.parametrize(
    "refused",
    [{"timeout_s": 0}, {"timeout_s": "soon"}, {"concurrency": 0}, {"slo_class": "urgent"}],
)
def test_what_cannot_be_right_creates_no_collection(zoo, refused) -> None:
    from zooserve.errors import BadInput

    with closing(QdrantClient(":memory:")) as qdrant:
        docs = zoo.collection("docs", client=qdrant)
        for use in (docs.upsert, docs.sync):
            with pytest.raises(BadInput):
                use(["a"], **refused)
        with pytest.raises(BadInput, match="reading"):
            docs.search("a", reading=[1.0])
        assert qdrant.get_collections().collections == []
