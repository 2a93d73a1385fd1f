"""Collections over the running platform, in Qdrant's local mode; the examples of docs/rag.md as they stand."""

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from qdrant_client import QdrantClient

from zooserve import Chunk, Document, Zoo, split
from zooserve.errors import InputTooLong, SpaceMismatch
from zooserve.sdk import Upserted

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
FACTS = [
    "Ducks are waterfowl and swim on ponds and lakes.",
    "The yearly tax form has to be handed in by the end of May.",
    "A context manager closes a file when its block is left, also by an exception.",
    "Bread dough rests for an hour before it is baked.",
]


@pytest.fixture(scope="module")
def zoo(platform):
    """A client with time for a busy machine."""
    with Zoo(platform.url, timeout_s=120) as zoo:
        yield zoo


@pytest.fixture
def docs(zoo, tmp_path):
    """Four facts."""
    docs = zoo.collection("docs", path=tmp_path)
    assert docs.upsert([Chunk(text, id=place) for place, text in enumerate(FACTS)]) == Upserted(embedded=4)
    return docs


def test_a_question_finds_its_fact_and_the_reranker_agrees(docs) -> None:
    assert docs.search("which birds live in water?", 1)[0].text == FACTS[0]
    hits = docs.search("how do I close a file after an error?", 2, rerank=4)
    assert hits[0].text == FACTS[2]
    assert 0 < hits[1].score < hits[0].score <= 1


def test_the_fingerprint_is_the_platforms(docs, zoo) -> None:
    card = zoo.model("embed")
    told = docs.describe()
    assert told.index.space == card.space
    assert told.physical == f"docs--{card.space}"
    assert told.index.dimensions == card.dimensions == 384


def test_what_is_stored_is_not_embedded_again(docs) -> None:
    again = [Chunk(text, id=place) for place, text in enumerate(FACTS)]
    assert docs.upsert(again) == Upserted(unchanged=4)


def test_vectors_of_another_space_are_refused_with_both_names(zoo, docs) -> None:
    told = docs.describe()
    docs.close()
    with closing(QdrantClient(path=docs.where)) as client:
        client.update_collection("docs", metadata=replace(told.index, space="0" * 16).metadata)
    for collection in (zoo.collection("docs", path=docs.where), zoo.collection("docs", path=docs.where, model="embed")):
        with pytest.raises(
            SpaceMismatch, match=rf"docs.*embed@1 \(space 0{{16}}\).*{told.index.space}.*zooserve reembed"
        ):
            collection.search("ducks")


def test_a_chunk_too_long_for_the_model_is_named_and_its_pieces_fit(docs) -> None:
    text = "A sentence of some length, which is here to fill the page. " * 60
    with pytest.raises(InputTooLong, match=r"chunk 0 of the document 'long'.*256.*Nothing was stored"):
        docs.upsert([Document("short", ["fits"]), Document("long", text)])
    assert docs.upsert(Document("long", split(text))).embedded > 3


def test_a_reading_of_the_query_is_in_the_same_space(docs, zoo) -> None:
    question = "when are taxes due?"
    hits = docs.search(question, 1, reading=zoo.rag_query(question))
    assert hits[0].text == FACTS[1]
    assert hits[0].score == pytest.approx(docs.search(question, 1)[0].score, abs=1e-4)


def test_the_examples_of_the_page_run_as_they_stand(platform, zoo, tmp_path, monkeypatch, capsys) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/rag.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 4
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    has_sparse = any(card.name == "embed_sparse" and card.ready for card in zoo.models())
    for block in blocks:
        source = block.replace('Zoo("http://127.0.0.1:8000")', f'Zoo("{platform.url}", timeout_s=120)')
        if not has_sparse:
            source = source.partition("both = ")[0]
        exec(compile(source, "docs/rag.md", "exec"), names)
    names["zoo"].close()  # type: ignore[attr-defined]
    said = capsys.readouterr().out
    assert "Upserted(embedded=1, unchanged=0, updated=0, removed=0)" in said
    assert "handbook#0" in said
