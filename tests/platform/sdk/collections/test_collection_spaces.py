"""A collection is of one embedding space: created in it, found in it, and refused to any other."""

from contextlib import closing

import pytest
from qdrant_client import QdrantClient, models

from zooserve import Chunk
from zooserve.errors import (
    BadInput,
    ClientClosed,
    CollectionError,
    ModelNotFound,
    NoSuchCollection,
    SpaceMismatch,
    UnmarkedCollection,
)
from zooserve.sdk import Index

A, B = "a" * 16, "b" * 16
COSINE = models.Distance.COSINE


@pytest.fixture
def qdrant():
    """Qdrant's local mode, in memory."""
    with closing(QdrantClient(":memory:")) as client:
        yield client


def foreign(qdrant, name: str = "docs", size: int = 16, points: list[models.PointStruct] | None = None) -> None:
    """A collection that somebody else made."""
    qdrant.create_collection(name, vectors_config=models.VectorParams(size=size, distance=COSINE))
    if points:
        qdrant.upsert(name, points)


def test_a_new_collection_says_whose_vectors_it_holds(zoo, qdrant) -> None:
    docs = zoo.collection("docs", client=qdrant)
    docs.upsert(["a"])
    said = qdrant.get_collection("docs").config.metadata["zooserve"]
    assert said == {"schema": 1, "space": A, "model": "embed", "version": "1", "dimensions": 16, "sparse": None}
    assert [(held.alias_name, held.collection_name) for held in qdrant.get_aliases().aliases] == [
        ("docs", f"docs--{A}")
    ]
    told = docs.describe()
    assert (told.name, told.physical, told.points, told.index) == ("docs", f"docs--{A}", 1, Index(A, "embed", "1", 16))


def test_another_models_vectors_are_refused_with_both_names_and_the_way_out(zoo, qdrant) -> None:
    zoo.collection("docs", client=qdrant).upsert(["a"])
    other = zoo.collection("docs", client=qdrant, model="embed_other")
    for use in (lambda: other.search("a"), lambda: other.upsert(["b"]), other.count, lambda: other.delete([1])):
        with pytest.raises(SpaceMismatch) as caught:
            use()
        parts = ("docs", "embed@1", A, "embed_other@1", B, "zooserve reembed docs --to embed_other@1")
        assert all(part in str(caught.value) for part in parts)
    assert qdrant.count("docs").count == 1


def test_a_new_version_of_the_model_is_another_space(zoo, served, qdrant) -> None:
    docs = zoo.collection("docs", client=qdrant)
    docs.upsert(["a"])
    served.versions["embed"] = "2"
    for collection in (docs, zoo.collection("docs", client=qdrant)):
        with pytest.raises(
            SpaceMismatch, match=rf"embed@1 \(space {A}\).*embed@2.*{served.space('embed')}.*reembed docs"
        ):
            collection.search("a")
        with pytest.raises(SpaceMismatch):
            collection.upsert(["b"])
    served.versions["embed"] = "1"
    assert docs.upsert(["b"]).embedded == 1


def test_without_a_model_the_collections_own_is_asked(zoo, served, qdrant) -> None:
    zoo.collection("docs", client=qdrant, model="embed_other").upsert(["a duck"])
    assert zoo.collection("docs", client=qdrant).search("a duck")[0].text == "a duck"
    body = served.bodies("/v1/embeddings")[-1]
    assert (body["model"], body["input_type"]) == ("embed_other", "query")
    assert served.requests[-1].headers["x-zooserve-embedding-space"] == B


def test_a_model_that_is_not_served_any_more_is_told(zoo, served, qdrant) -> None:
    zoo.collection("docs", client=qdrant, model="embed_other").upsert(["a"])
    qdrant.update_collection("docs", metadata={"zooserve": Index(B, "gone", "3", 16).metadata["zooserve"]})
    with pytest.raises(SpaceMismatch, match=r"gone@3.*does not serve.*reembed docs --to"):
        zoo.collection("docs", client=qdrant).search("a")
    with pytest.raises(ModelNotFound):
        zoo.collection("docs", client=qdrant, model="nobody").search("a")
    with pytest.raises(ModelNotFound):
        zoo.collection("new", client=qdrant, model="nobody").search("a")


def test_a_model_that_does_not_embed_is_refused(zoo, qdrant) -> None:
    with pytest.raises(BadInput, match=r"rerank is a model of the task rerank"):
        zoo.collection("docs", client=qdrant, model="rerank").count()
    with pytest.raises(BadInput, match=r"embed is a model of the task embed; .* sparse"):
        zoo.collection("docs", client=qdrant, sparse="embed").count()
    assert qdrant.get_collections().collections == []


def test_an_empty_collection_finds_nothing(zoo, qdrant) -> None:
    docs = zoo.collection("docs", client=qdrant)
    assert docs.search("anything") == []
    assert docs.search("anything", rerank=5, filter={"lang": "en"}) == []
    assert docs.count() == 0
    assert docs.delete(["nobody"]) == 0


def test_a_collection_that_is_not_there_can_be_refused(zoo, qdrant) -> None:
    with pytest.raises(NoSuchCollection, match="docs"):
        zoo.collection("docs", client=qdrant, create=False).search("a")
    assert qdrant.get_collections().collections == []


def test_a_collection_without_our_metadata_is_refused_and_left_as_it_is(zoo, served, qdrant) -> None:
    foreign(qdrant)
    with pytest.raises(UnmarkedCollection, match=r"docs.*adopt=True"):
        zoo.collection("docs", client=qdrant).search("a")
    with pytest.raises(UnmarkedCollection):
        zoo.collection("docs", client=qdrant).drop()
    assert qdrant.get_collection("docs").config.metadata is None
    assert served.embedded == []


def test_adopting_writes_down_what_it_holds_once_size_and_a_sample_agree(zoo, qdrant) -> None:
    vector = zoo.embed("a duck")[0]
    foreign(qdrant, points=[models.PointStruct(id=1, vector=vector, payload={"page_content": "a duck", "owner": "me"})])
    adopted = zoo.collection("docs", client=qdrant, model="embed", adopt=True, text_key="page_content")
    assert [(hit.id, hit.text, hit.payload) for hit in adopted.search("a duck")] == [(1, "a duck", {"owner": "me"})]
    assert adopted.describe().physical == "docs"
    adopted.upsert([Chunk("a pond", id=2)])
    assert qdrant.retrieve("docs", [2])[0].payload["page_content"] == "a pond"
    later = zoo.collection("docs", client=qdrant)
    assert {hit.text for hit in later.search("a pond", rerank=5)} == {"a duck", "a pond"}
    assert later.upsert([Chunk("a pond", id=2)]).unchanged == 1


def test_adopting_keeps_the_metadata_of_others(zoo, qdrant) -> None:
    qdrant.create_collection(
        "docs", vectors_config=models.VectorParams(size=16, distance=COSINE), metadata={"owner": "me"}
    )
    zoo.collection("docs", client=qdrant, adopt=True).count()
    metadata = qdrant.get_collection("docs").config.metadata
    assert metadata["owner"] == "me"
    assert metadata["zooserve"]["space"] == A


def test_vectors_of_another_size_are_not_adopted(zoo, qdrant) -> None:
    foreign(qdrant, size=24)
    with pytest.raises(SpaceMismatch, match=r"docs holds vectors of 24 numbers; embed@1 makes those of 16"):
        zoo.collection("docs", client=qdrant, adopt=True).count()
    assert qdrant.get_collection("docs").config.metadata is None


def test_vectors_of_another_model_of_the_same_size_are_not_adopted(zoo, qdrant) -> None:
    foreign(qdrant, points=[models.PointStruct(id=1, vector=[1.0] + 15 * [0.0], payload={"text": "ducks on ponds"})])
    with pytest.raises(SpaceMismatch, match=r"cosine"):
        zoo.collection("docs", client=qdrant, adopt=True).count()
    assert qdrant.get_collection("docs").config.metadata is None


def test_points_without_texts_are_adopted_by_their_size_but_not_reranked(zoo, qdrant) -> None:
    foreign(qdrant, points=[models.PointStruct(id=1, vector=[1.0] * 16, payload={})])
    adopted = zoo.collection("docs", client=qdrant, adopt=True)
    assert [hit.text for hit in adopted.search("a")] == [""]
    with pytest.raises(CollectionError, match=r"point 1 .*no text"):
        adopted.search("a", rerank=5)


def test_named_vectors_are_not_ours(zoo, qdrant) -> None:
    vector = models.VectorParams(size=16, distance=COSINE)
    qdrant.create_collection("docs", vectors_config={"title": vector, "body": vector})
    with pytest.raises(SpaceMismatch, match=r"docs has no vector without a name \(it has: body, title\)"):
        zoo.collection("docs", client=qdrant, adopt=True).count()


def test_metadata_that_is_not_the_collections_own_is_refused(zoo, qdrant) -> None:
    foreign(qdrant, size=24)
    qdrant.update_collection("docs", metadata=Index(A, "embed", "1", 16).metadata)
    with pytest.raises(SpaceMismatch, match=r"docs.*16 numbers.*made for 24"):
        zoo.collection("docs", client=qdrant).search("a")


def test_metadata_that_cannot_be_read_is_refused(zoo, qdrant) -> None:
    foreign(qdrant)
    qdrant.update_collection("docs", metadata={"zooserve": {"schema": 99}})
    for adopt in (False, True):
        with pytest.raises(UnmarkedCollection, match=r"docs.*schema 99"):
            zoo.collection("docs", client=qdrant, adopt=adopt).search("a")


def test_an_alias_that_points_nowhere_is_told(zoo, qdrant) -> None:
    qdrant._client.aliases["docs"] = "docs--gone"
    with pytest.raises(NoSuchCollection, match=r"alias docs points at docs--gone"):
        zoo.collection("docs", client=qdrant).search("a")


def test_an_alias_of_a_collection_of_another_name_is_used_as_it_is(zoo, qdrant) -> None:
    zoo.collection("manuals", client=qdrant).upsert(["a duck"])
    alias = models.CreateAlias(collection_name=f"manuals--{A}", alias_name="docs")
    qdrant.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    docs = zoo.collection("docs", client=qdrant)
    assert docs.describe().physical == f"manuals--{A}"
    with pytest.raises(SpaceMismatch):
        zoo.collection("docs", client=qdrant, model="embed_other").count()


def test_an_alias_of_a_collection_without_our_metadata_is_refused(zoo, qdrant) -> None:
    foreign(qdrant, "theirs")
    alias = models.CreateAlias(collection_name="theirs", alias_name="docs")
    qdrant.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    with pytest.raises(UnmarkedCollection, match="theirs"):
        zoo.collection("docs", client=qdrant).search("a")


def test_a_switched_alias_is_followed_by_the_next_call(zoo, served, qdrant) -> None:
    docs = zoo.collection("docs", client=qdrant)
    docs.upsert(["old"])
    pinned = zoo.collection("docs", client=qdrant, model="embed")
    assert pinned.count() == 1
    zoo.collection("next", client=qdrant, model="embed_other").upsert(["new"])
    alias = models.CreateAlias(collection_name=f"next--{B}", alias_name="docs")
    qdrant.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    assert [hit.text for hit in docs.search("new")] == ["new"]
    assert served.bodies("/v1/embeddings")[-1]["model"] == "embed_other"
    with pytest.raises(SpaceMismatch, match=r"embed_other@1.*embed@1"):
        pinned.search("new")


def test_a_switch_during_an_upsert_is_told(zoo, qdrant) -> None:
    docs = zoo.collection("docs", client=qdrant)
    zoo.collection("next", client=qdrant, model="embed_other").upsert(["new"])
    alias = models.CreateAlias(collection_name=f"next--{B}", alias_name="docs")
    switch = [models.CreateAliasOperation(create_alias=alias)]
    with pytest.raises(CollectionError, match=rf"docs was switched from docs--{A}.*once more.*stay in docs--{A}"):
        docs.upsert(["a"], progress=lambda done: qdrant.update_collection_aliases(switch))


def test_a_collection_that_another_process_made_meanwhile_will_do(zoo, qdrant, monkeypatch) -> None:
    create = qdrant.create_collection

    def overtaken(*arguments, **named) -> bool:
        create(*arguments, **named)
        return create(*arguments, **named)

    monkeypatch.setattr(qdrant, "create_collection", overtaken)
    docs = zoo.collection("docs", client=qdrant)
    assert docs.upsert(["ours"]).embedded == 1
    assert docs.describe().physical == f"docs--{A}"


def test_a_creation_that_was_interrupted_is_finished(zoo, qdrant) -> None:
    docs = zoo.collection("docs", client=qdrant)
    docs.upsert(["a"])
    alias = models.DeleteAlias(alias_name="docs")
    qdrant.update_collection_aliases([models.DeleteAliasOperation(delete_alias=alias)])
    assert zoo.collection("docs", client=qdrant).count() == 1


def test_dropping_removes_collection_and_alias_whichever_model_made_it(zoo, served, qdrant) -> None:
    docs = zoo.collection("docs", client=qdrant)
    docs.upsert(["a"])
    served.versions["embed"] = "2"
    assert docs.drop()
    assert not docs.drop()
    assert (qdrant.get_collections().collections, qdrant.get_aliases().aliases) == ([], [])
    assert docs.upsert(["a"]).embedded == 1
    assert docs.describe().index.version == "2"


@pytest.mark.parametrize("name", ["", "a b", "../up", "docs--" + A, "x" * 201])
def test_a_name_that_no_collection_can_have_is_refused(zoo, qdrant, name) -> None:
    with pytest.raises(BadInput, match="name"):
        zoo.collection(name, client=qdrant).count()


def test_a_collection_is_in_one_place(zoo, qdrant, tmp_path) -> None:
    for places in ({}, {"path": tmp_path, "url": "http://q"}, {"client": qdrant, "path": tmp_path}):
        with pytest.raises(BadInput, match="one place"):
            zoo.collection("docs", **places)
    with pytest.raises(BadInput, match="api_key"):
        zoo.collection("docs", path=tmp_path, api_key="k")
    with pytest.raises(BadInput, match=r"object; it must be a qdrant_client.QdrantClient"):
        zoo.collection("docs", client=object())


def test_collections_of_one_folder_share_it_and_let_go_of_it_together(zoo, tmp_path) -> None:
    docs, notes = zoo.collection("docs", path=tmp_path), zoo.collection("notes", path=f"{tmp_path}/../{tmp_path.name}")
    docs.upsert(["a"])
    notes.upsert(["b"])
    docs.close()
    with closing(QdrantClient(path=str(tmp_path))) as client:
        assert {held.name for held in client.get_collections().collections} == {f"docs--{A}", f"notes--{A}"}
    assert notes.count() == 1


def test_a_closed_client_leaves_the_folder_alone(zoo, tmp_path, qdrant) -> None:
    docs = zoo.collection("docs", path=tmp_path)
    docs.upsert(["a"])
    theirs = zoo.collection("docs", client=qdrant)
    theirs.upsert(["a"])
    zoo.close()
    with pytest.raises(ClientClosed):
        docs.count()
    assert qdrant.count("docs").count == 1
    QdrantClient(path=str(tmp_path)).close()
