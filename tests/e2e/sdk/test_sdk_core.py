"""The client against a running platform: every route, pins, spaces, budgets, cancellation, many callers at once."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from zooserve import AsyncZoo, Zoo, errors

pytestmark = pytest.mark.e2e

PATIENCE_S = 240
USED = ("embed", "rerank", "classify", "rag_query", "language")
TEXTS = [
    f"{animal} number {number} sleeps"
    for number in range(65)
    for animal in ("A duck", "A heron", "The old dog", "A cat")
]


def until(happens: Callable[[], Any], what: str) -> Any:
    """What it returns, as soon as that is something."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if got := happens():
            return got
        time.sleep(0.2)
    return pytest.fail(f"{what} did not happen within {PATIENCE_S} s")


@pytest.fixture(scope="module")
def zoo(platform: Any) -> Iterator[Zoo]:
    """A client, once all that these tests call is ready: `up` waits for the required models alone."""
    with Zoo(platform.url, timeout_s=PATIENCE_S) as client:
        until(lambda: {card.name for card in client.models() if card.ready} >= set(USED), f"readiness of {USED}")
        yield client


def cancelled(url: str) -> float:
    """Requests to `embed` whose callers left, by the platform's own count."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    counts = [line for line in lines if line.startswith("zooserve_requests_total") and 'model="embed"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in counts if 'outcome="cancelled"' in line)


def test_every_route_answers_and_says_who_did(zoo: Zoo) -> None:
    embedded = zoo.embed(["a duck on a pond", "an invoice"])
    ranked = zoo.rerank("which birds swim?", ["an invoice", "a duck swims on the pond"])
    classified = zoo.classify(["you are a stupid idiot", "what a lovely duck"])
    read = zoo.rag_query("which birds swim on ponds?")
    assert (ranked[0].index, ranked[0].document) == (1, "a duck swims on the pond")
    assert 0 <= ranked[1].score < ranked[0].score <= 1
    assert (classified[0].label, classified[1].label) == ("toxic", None)
    assert (read.language, read.flagged, len(read.vector)) == ("en", False, embedded.dimensions)
    answered = {(one.model, one.version) for one in (embedded, ranked, classified, read)}
    assert answered == {("embed", "1"), ("rerank", "1"), ("classify", "1"), ("rag_query", "1")}
    assert np.linalg.norm(embedded.numpy(), axis=1) == pytest.approx([1, 1], abs=1e-5)


def test_a_query_is_read_into_the_space_of_its_passages(zoo: Zoo) -> None:
    read, embedded = zoo.rag_query("a duck on a pond"), zoo.embed("a duck on a pond")
    assert read.space == embedded.space == zoo.model("embed").space
    assert np.dot(read.vector, embedded[0]) == pytest.approx(1, abs=1e-5)


def test_models_are_listed_and_shown(zoo: Zoo) -> None:
    cards = {card.name: card for card in zoo.models()}
    assert set(USED) <= set(cards)
    assert (cards["embed"].task, cards["embed"].dimensions, cards["embed"].limits["max_tokens"]) == ("embed", 384, 256)
    assert "toxic" in cards["classify"].labels
    assert zoo.model("sentence-transformers/all-MiniLM-L6-v2").name == "embed"


def test_a_pin_is_answered_by_its_release_alone(zoo: Zoo) -> None:
    pinned = zoo.embed(["a duck"], model="embed@1")
    assert (pinned.model, pinned.version) == ("embed", "1")
    with pytest.raises(errors.ModelNotFound, match="embed@1") as caught:
        zoo.embed(["a duck"], model="embed@99")
    assert (caught.value.status, caught.value.param) == (404, "model")


@pytest.mark.parametrize("use", ["embed", "classify", "rag_query", "embed_sparse"])
def test_a_name_that_nobody_has_is_told_with_the_nearest(zoo: Zoo, use: str) -> None:
    with pytest.raises(errors.ModelNotFound, match=r"'embd' does not exist.*embed") as caught:
        getattr(zoo, use)("a duck", model="embd")
    assert caught.value.request_id
    with pytest.raises(errors.ModelNotFound, match="rerrank"):
        zoo.rerank("a", ["b"], model="rerrank")
    with pytest.raises(errors.ModelNotFound):
        zoo.model("embd")


def test_a_model_of_another_task_is_refused(zoo: Zoo) -> None:
    with pytest.raises(errors.BadInput, match="/v1/chat/completions"):
        zoo.embed("a duck", model="chat")


def test_another_space_is_refused_with_both(zoo: Zoo) -> None:
    own = zoo.embed("a duck").space
    assert zoo.embed("a duck", space=own).space == own
    for use in (zoo.embed, zoo.rag_query):
        with pytest.raises(errors.OtherEmbeddingSpace, match=f"'0123456789abcdef'.*'{own}'") as caught:
            use("a duck", space="0123456789abcdef")
        assert caught.value.status == 409


def test_a_long_list_is_the_same_as_its_texts_one_by_one(zoo: Zoo) -> None:
    told: list[tuple[int, int]] = []
    together = zoo.embed(TEXTS, progress=lambda *both: told.append(both))
    streamed = np.concatenate([part.numpy() for part in zoo.embed_stream(iter(TEXTS), concurrency=2)])
    assert told == [(256, 260), (260, 260)]
    assert together.numpy().shape == streamed.shape == (260, 384)
    assert np.sum(together.numpy() * streamed, axis=1).min() > 0.99999
    for place in (0, 255, 256, 259):
        assert np.dot(zoo.embed(TEXTS[place])[0], together[place]) == pytest.approx(1, abs=1e-5)


def test_rankings_and_labels_in_parts_are_those_of_the_whole(zoo: Zoo) -> None:
    ranked = zoo.rerank("a sleeping heron", TEXTS, top_n=20)
    assert all("heron" in one.document for one in ranked)
    assert all(one.document == TEXTS[one.index] for one in ranked)
    labels = zoo.classify([f"{text} and dreams of a tax form." for text in TEXTS], model="language")
    assert len(labels) == 260
    assert sum(one.label == "en" for one in labels) > 230


def test_texts_that_are_too_long_are_named(zoo: Zoo) -> None:
    long = "a duck on a pond " * 200
    with pytest.raises(errors.InputTooLong) as caught:
        zoo.embed(["a duck", long])
    assert caught.value.param == "input[1]"
    assert len(zoo.embed(["a duck", long], long_text=True)) == 2


def test_the_budget_ends_the_call_and_the_platform_knows_it(zoo: Zoo, platform: Any) -> None:
    with pytest.raises(errors.DeadlineExceeded):
        zoo.embed(TEXTS, timeout_s=0.02)
    assert len(zoo.embed("a duck")) == 1


def test_a_call_is_found_in_the_access_log_by_its_id(zoo: Zoo, platform: Any) -> None:
    made = zoo.embed(TEXTS)
    log = platform.folder.logs / "access.jsonl"

    def both_parts() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in log.read_text().splitlines() if made.request_id in line]
        return lines if len(lines) > 1 else []

    lines = until(both_parts, "a line of each part")
    assert {(line["route"], line["status"], line["class"]) for line in lines} == {("/v1/embeddings", 200, "bulk")}


async def test_a_cancelled_call_ends_on_the_platform_too(zoo: Zoo, platform: Any) -> None:
    before = cancelled(platform.url)
    end = time.monotonic() + PATIENCE_S
    async with AsyncZoo(platform.url, timeout_s=PATIENCE_S) as client:
        while cancelled(platform.url) == before:
            assert time.monotonic() < end, "nothing was cancelled on the platform"
            # It must have arrived there, and must not be through: how soon either is so differs by machine.
            task = asyncio.create_task(client.embed([text + " and dreams" * 60 for text in TEXTS * 20]))
            await asyncio.sleep(0.3)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            await asyncio.sleep(0.3)
        assert len(await client.embed("a duck")) == 1


async def test_many_tasks_share_a_client(zoo: Zoo, platform: Any) -> None:
    async with AsyncZoo(platform.url, timeout_s=PATIENCE_S) as client:
        made = await asyncio.gather(*(client.embed([text]) for text in TEXTS[:40]))
        parts = [part async for part in client.embed_stream(TEXTS[:40], slo_class="interactive")]
    apart = np.concatenate([one.numpy() for one in made])
    assert np.sum(apart * parts[0].numpy(), axis=1).min() > 0.99999


async def test_threads_share_a_client_also_where_an_event_loop_runs(zoo: Zoo) -> None:
    made: dict[int, float] = {}
    expected = zoo.embed(TEXTS[:12]).numpy()

    def work(place: int) -> None:
        made[place] = float(np.dot(zoo.embed(TEXTS[place])[0], expected[place]))

    threads = [threading.Thread(target=work, args=(place,)) for place in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert sorted(made) == list(range(12))
    assert min(made.values()) == pytest.approx(1, abs=1e-5)
