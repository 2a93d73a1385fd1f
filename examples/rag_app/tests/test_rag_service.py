"""The service without a platform: what it refuses by itself, and what it says when nobody answers."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from rag_app.app import MAX_DOCUMENT_BYTES, Settings, create
from rag_app.rag import Rag, Source, cited

from zooserve import AsyncZoo
from zooserve.sdk import Upserted

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
async def service(tmp_path):
    app = create(Settings(tmp_path / "data", zoo_url=NOBODY))
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://rag") as http:
        yield http


async def test_health_names_the_platform_that_does_not_answer(service) -> None:
    answer = await service.get("/health")
    assert answer.status_code == 503
    assert NOBODY in answer.json()["detail"]


async def test_a_question_without_a_platform_is_a_503(service) -> None:
    answer = await service.post("/ask", json={"question": "Where do ducks sleep?"})
    assert answer.status_code == 503
    assert NOBODY in answer.json()["detail"]


async def test_an_endless_document_is_refused_while_it_is_read(service) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65536
            yield b"quack " * 10922 + b"duck"

    answer = await service.put("/documents/ducks", content=endless())
    assert answer.status_code == 413
    assert sent <= MAX_DOCUMENT_BYTES + 2 * 65536


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"ducks \xff", "byte 6"),
        ("ducks".encode("utf-16"), "byte 0"),
        (b"PK\0\1", "NUL"),
        (b" \n ", "empty"),
        (b"", "empty"),
    ],
)
async def test_what_is_no_text_is_refused_with_the_reason(service, body, told) -> None:
    answer = await service.put("/documents/ducks", content=body)
    assert answer.status_code == 400
    assert told in answer.json()["detail"]


@pytest.mark.parametrize("name", ["two words", "a" * 101, "%00"])
async def test_a_name_that_is_none_is_refused(service, name) -> None:
    assert (await service.put(f"/documents/{name}", content=b"Ducks.")).status_code == 422


@pytest.mark.parametrize("question", ["", "x" * 1001, None, 7])
async def test_a_question_that_is_none_is_refused(service, question) -> None:
    assert (await service.post("/ask", json={"question": question})).status_code == 422


@pytest.mark.parametrize("value", [rb'"\ud800"', b"NaN", b"1e999", b"{}"])
async def test_what_no_answer_can_repeat_is_refused(service, value) -> None:
    headers = {"content-type": "application/json"}
    asked = await service.post("/ask", content=b'{"question": %s}' % value, headers=headers)
    rated = await service.post("/feedback", content=b'{"answer": %s, "useful": true}' % value, headers=headers)
    assert (asked.status_code, rated.status_code) == (422, 422)
    assert asked.json()["detail"][0]["loc"] == ["body", "question"]


async def test_feedback_on_an_answer_that_was_never_given_is_a_404(service) -> None:
    answer = await service.post("/feedback", json={"answer": "0" * 32, "useful": True})
    assert answer.status_code == 404


def test_only_sources_that_were_given_are_cited() -> None:
    sources = [Source(number, "ducks", "Ducks.", 0.5) for number in (1, 2, 3)]
    assert cited("Ponds [3], and ponds [1] [3] [9] [].", sources) == [1, 3]
    assert cited("Ponds.", sources) == []


async def test_changes_of_one_document_take_turns_and_of_others_do_not(tmp_path, monkeypatch) -> None:
    under_way: list[str] = []
    together: set[tuple[str, ...]] = set()

    async def change(name: str) -> None:
        under_way.append(name)
        await asyncio.sleep(0.01)
        together.add(tuple(sorted(under_way)))
        under_way.remove(name)

    async def upsert(document, timeout_s) -> Upserted:
        await change(document.id)
        return Upserted()

    async with AsyncZoo(NOBODY) as zoo:
        rag = Rag(zoo, path=tmp_path)
        monkeypatch.setattr(rag._documents, "upsert", upsert)
        monkeypatch.setattr(rag._documents, "delete", change)
        await asyncio.gather(
            rag.ingest("a", "Ducks."), rag.forget("a"), rag.ingest("a", "Geese."), rag.ingest("b", "Tax.")
        )
    assert ("a", "b") in together
    assert not any(names.count("a") > 1 for names in together)
    assert not rag._changing
