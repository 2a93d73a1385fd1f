"""Both clients' methods, over a transport: what is sent, what comes back, what is refused before anything is sent."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from zooserve import AsyncZoo, Zoo, errors
from zooserve.sdk.batches import MAX_ITEMS

Calling = Callable[..., Any]
OVERLOADED = {"error": {"message": "At the limit.", "type": "rate_limit_error", "param": None, "code": "overloaded"}}


VECTORS = {"data": [{"index": place, "embedding": "AACAPw=="} for place in range(256)], "usage": {"prompt_tokens": 1}}
SERVED = {"x-zooserve-model": "embed", "x-zooserve-version": "1", "x-zooserve-embedding-space": "s"}


def refusal(status: int, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return httpx.Response(status, headers={"x-request-id": "req_server", **(headers or {})}, json=body or OVERLOADED)


def soon() -> httpx.Response:
    return refusal(429, {"retry-after-ms": "1"})


def _streamed(texts: list[str]) -> Callable[[Any], Any]:
    """All of a stream's results, of either client."""

    async def gathered(zoo: AsyncZoo) -> list[Any]:
        return [made async for made in zoo.embed_stream(texts, concurrency=1)]

    return lambda zoo: gathered(zoo) if isinstance(zoo, AsyncZoo) else list(zoo.embed_stream(texts, concurrency=1))


def test_embeddings_say_what_made_them(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of()
    made = calling(platform, lambda zoo: zoo.embed(["a duck", "pond"], model="embed@1", input_type="query"))
    assert (made.model, made.version, made.space, made.dimensions, len(made)) == ("embed", "1", "space1", 2, 2)
    assert made.vectors == [[6.0, 0.0], [4.0, 1.0]]
    assert made.request_id == platform.requests[0].headers["x-request-id"]
    sent = {"model": "embed@1", "input": ["a duck", "pond"], "encoding_format": "base64", "input_type": "query"}
    assert platform.bodies == [sent]


def test_vectors_come_as_an_array_of_float32(calling: Calling, platform_of: Callable[..., Any]) -> None:
    array = calling(platform_of(), lambda zoo: zoo.embed("a duck")).numpy()
    assert (array.dtype.name, array.shape, array.tolist()) == ("float32", (1, 2), [[6.0, 0.0]])


def test_every_method_reads_its_answer(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of()
    sparse = calling(platform, lambda zoo: zoo.embed_sparse("a duck", truncate=True))
    assert (sparse[0].indices.tolist(), sparse[0].values.tolist(), sparse.space) == ([3, 6], [0.5, 1.5], "space1")
    ranked = calling(platform, lambda zoo: zoo.rerank("q", ["a", "ccc", {"text": "bb"}], top_n=2))
    assert [(one.index, one.document) for one in ranked] == [(1, "ccc"), (2, "bb")]
    labelled = calling(platform, lambda zoo: zoo.classify(["a", "b"]))
    assert (len(labelled), labelled[0].label, labelled[1].scores) == (2, None, {"rude": 0.25})
    read = calling(platform, lambda zoo: zoo.rag_query("a duck"))
    assert (read.vector, read.injection, read.flagged, read.language) == ([6.0, 0.0], 0.75, True, "en")
    assert [card.name for card in calling(platform, lambda zoo: zoo.models())] == ["embed"]
    card = calling(platform, lambda zoo: zoo.model("embed@1"))
    assert (card.model, card.version, card.space, card.ready) == ("embed", "1", "space1", True)


def test_a_name_cannot_leave_its_path(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of()
    calling(platform, lambda zoo: zoo.model("a/b?"))
    assert platform.requests[0].url.raw_path == b"/v1/models/a/b%3F"


def test_a_long_list_goes_in_parts_and_comes_back_in_order(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform, told = platform_of(), []
    texts = ["x" * (1 + place % 50) for place in range(1000)]
    made = calling(platform, lambda zoo: zoo.embed(texts, concurrency=3, progress=lambda *both: told.append(both)))
    assert [vector[0] for vector in made.vectors] == [len(text) for text in texts]
    assert made.prompt_tokens == 1000
    assert told == [(256, 1000), (512, 1000), (768, 1000), (1000, 1000)]
    assert sorted(len(body["input"]) for body in platform.bodies) == [232, 256, 256, 256]
    assert {request.headers["x-zooserve-class"] for request in platform.requests} == {"bulk"}
    # A canary is drawn by it: the parts of one call must meet one release.
    assert len({request.headers["x-request-id"] for request in platform.requests}) == 1


def test_parts_of_a_ranking_are_merged(calling: Calling, platform_of: Callable[..., Any]) -> None:
    documents = ["d" * (1 + (place * 37) % 900) for place in range(600)]
    ranked = calling(platform_of(), lambda zoo: zoo.rerank("q", documents, top_n=5))
    best = sorted(range(600), key=lambda place: -len(documents[place]))[:5]
    assert [one.index for one in ranked] == best
    assert all(one.document == documents[one.index] for one in ranked)


def test_images_go_a_few_at_a_time(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1000}}
    assert len(calling(platform, lambda zoo: zoo.classify([image] * 20, model="nsfw"))) == 20
    assert sorted(len(body["input"]) for body in platform.bodies) == [4, 16]


def test_parts_of_two_releases_are_refused(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of(version=lambda place: "2" if place else "1")
    with pytest.raises(errors.SpaceMismatch, match=r"embed@1 \(space space1\).*embed@2"):
        calling(platform, lambda zoo: zoo.embed(["a"] * 300, concurrency=1))


def test_an_answer_in_another_space_than_asked_for_is_refused(
    calling: Calling, platform_of: Callable[..., Any]
) -> None:
    with pytest.raises(errors.SpaceMismatch, match="space1, and space7"):
        calling(platform_of(), lambda zoo: zoo.embed("a", space="space7"))


def test_a_busy_platform_is_asked_again(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of(soon(), httpx.ConnectError("refused"))
    assert len(calling(platform, lambda zoo: zoo.embed("a"))) == 1
    assert len(platform.requests) == 3
    assert len({request.headers["x-request-id"] for request in platform.requests}) == 1


def test_a_platform_that_stays_busy_is_left_alone_after_so_many_tries(
    calling: Calling, platform_of: Callable[..., Any]
) -> None:
    platform = platform_of(*[soon() for _ in range(9)])
    with pytest.raises(errors.Overloaded, match="At the limit") as caught:
        calling(platform, lambda zoo: zoo.embed("a"))
    assert len(platform.requests) == 3
    assert (caught.value.status, caught.value.request_id, caught.value.retry_after_s) == (429, "req_server", 0.001)


def test_a_part_of_a_long_call_waits_longer(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of(*[soon() for _ in range(9)])
    assert len(calling(platform, lambda zoo: zoo.embed(["a"] * 300))) == 300


@pytest.mark.parametrize("at_once", [{"retry-after": "0"}, {"retry-after-ms": "0"}])
def test_a_part_that_may_come_back_at_once_takes_a_breath(
    calling: Calling, platform_of: Callable[..., Any], monkeypatch: Any, at_once: dict[str, str]
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("zooserve.sdk.aio.http.sleep", pause)
    monkeypatch.setattr("zooserve.sdk.blocking.http.sleep", pauses.append)
    platform = platform_of(*[refusal(429, at_once) for _ in range(9)])
    assert len(calling(platform, lambda zoo: zoo.embed(["a"] * 300))) == 300
    assert len(pauses) == 9
    assert min(pauses) >= 0.05


def test_without_retries_there_is_one_try(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of(*[soon() for _ in range(9)])
    with pytest.raises(errors.Overloaded):
        calling(platform, lambda zoo: zoo.embed(["a"] * 300, concurrency=1), retries=0)
    assert len(platform.requests) == 1


def test_no_pause_goes_past_the_budget(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of(refusal(503, {"retry-after": "3600"}, error={"message": "not ready", "code": None}))
    with pytest.raises(errors.BackendUnavailable, match="not ready") as caught:
        calling(platform, lambda zoo: zoo.embed("a", timeout_s=30))
    assert (len(platform.requests), caught.value.retry_after_s) == (1, 3600)


def test_what_is_left_of_the_budget_is_sent_with_each_try(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of(refusal(429, {"retry-after-ms": "50"}))
    calling(platform, lambda zoo: zoo.embed("a", timeout_s=30))
    first, second = (int(request.headers["x-request-timeout-ms"]) for request in platform.requests)
    assert 29_000 < second <= first - 50 <= 29_950


def test_bulk_work_waits_for_its_turn_longer_than_others(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of(*[refusal(429, {"retry-after-ms": "1"})] * 9)
    calling(platform, lambda zoo: zoo.embed("a", slo_class="bulk"))
    assert len(platform.requests) == 10
    platform = platform_of(*[refusal(429, {"retry-after-ms": "1"})] * 9)
    with pytest.raises(errors.Overloaded):
        calling(platform, lambda zoo: zoo.embed("a"))
    assert len(platform.requests) == 3


@pytest.mark.parametrize("seconds", [float("inf"), 1e300, 10**400])
def test_an_endless_budget_is_not_sent(calling: Calling, platform_of: Callable[..., Any], seconds: float) -> None:
    platform = platform_of()
    calling(platform, lambda zoo: zoo.embed("a", timeout_s=seconds))
    assert "x-request-timeout-ms" not in platform.requests[0].headers


def test_one_part_that_fails_fails_the_call_and_nothing_more_is_sent(calling: Calling) -> None:
    asked: list[int] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(len(asked))
        return refusal(400, error={"message": "no", "param": "input[3]", "code": "context_length_exceeded"})

    with pytest.raises(errors.InputTooLong, match="no") as caught:
        calling(refuse, lambda zoo: zoo.embed(["a"] * 20 * MAX_ITEMS, concurrency=2))
    assert caught.value.status == 400
    assert caught.value.param in ("input[3]", f"input[{MAX_ITEMS + 3}]"), "whichever of two was refused first"
    assert len(asked) <= 4


def test_an_item_at_fault_is_named_by_its_place_in_the_whole_list(calling: Calling) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if "long" not in body["input"]:
            return httpx.Response(200, headers=SERVED, json=VECTORS)
        said = f"`input[{body['input'].index('long')}]` has 300 tokens."
        return refusal(400, error={"message": said, "param": "input[44]", "code": "context_length_exceeded"})

    texts = ["a"] * 300 + ["long"] + ["a"] * 211
    for use in (lambda zoo: zoo.embed(texts, concurrency=1), _streamed(texts)):
        with pytest.raises(errors.InputTooLong, match=r"`input\[300\]` has 300 tokens") as caught:
            calling(refuse, use)
        assert (caught.value.param, caught.value.message) == ("input[300]", str(caught.value))


def test_an_error_of_progress_ends_the_call(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of()

    def tell(done: int, total: int) -> None:
        raise KeyError(done)

    with pytest.raises(KeyError, match="256"):
        calling(platform, lambda zoo: zoo.embed(["a"] * 20 * MAX_ITEMS, concurrency=2, progress=tell))
    assert len(platform.requests) <= 6


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": None}, "input"),
        ({"input": b"bytes"}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": {"a", "b"}}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ["a", None]}, "input[1]"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": ["a", b"a"]}, "input[1]"),
        ({"input": [["a"]]}, "input[0]"),
        ({"input": "half \ud83e of a duck"}, "input"),
        ({"input": "a\0b"}, "input"),
        ({"input": "a", "model": ""}, "model"),
        ({"input": "a", "model": None}, "model"),
        ({"input": "a", "space": "ü"}, "space"),
        ({"input": "a", "space": ""}, "space"),
        ({"input": "a", "slo_class": "fast"}, "slo_class"),
        ({"input": "a", "timeout_s": 0}, "timeout_s"),
        ({"input": "a", "timeout_s": float("nan")}, "timeout_s"),
        ({"input": "a", "timeout_s": "60"}, "timeout_s"),
        ({"input": "a", "concurrency": 0}, "concurrency"),
        ({"input": "a", "concurrency": 1.5}, "concurrency"),
    ],
)
def test_what_cannot_be_right_is_refused_before_it_is_sent(
    calling: Calling, platform_of: Callable[..., Any], arguments: dict[str, Any], param: str
) -> None:
    platform = platform_of()
    with pytest.raises(errors.BadInput) as caught:
        calling(platform, lambda zoo: zoo.embed(**arguments))
    assert (caught.value.param, caught.value.status) == (param, None)
    assert str(caught.value).startswith(f"`{param}`")
    assert not platform.requests


def test_the_other_methods_refuse_too(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of()
    for use in (
        lambda zoo: zoo.rerank("", ["a"]),
        lambda zoo: zoo.rerank("q", []),
        lambda zoo: zoo.rerank("q", "a"),
        lambda zoo: zoo.rerank("q", ["a", {"title": "b"}]),
        lambda zoo: zoo.rerank("q", ["a"], top_n=0),
        lambda zoo: zoo.classify([]),
        lambda zoo: zoo.classify([3]),
        lambda zoo: zoo.classify([{"type": "file", "file": {"file_data": b"raw"}}]),
        lambda zoo: zoo.embed_sparse([""]),
        lambda zoo: zoo.rag_query(["a"]),
        lambda zoo: zoo.model(""),
        lambda zoo: zoo.model("\ud800"),
        lambda zoo: zoo.model("../../metrics"),
    ):
        with pytest.raises(errors.BadInput):
            calling(platform, use)
    assert not platform.requests


def test_a_document_larger_than_a_body_may_be_is_not_sent(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of()
    with pytest.raises(errors.BodyTooLarge, match=r"at most 8,388,608 .*chunks"):
        calling(platform, lambda zoo: zoo.embed(["a", "b" * 9_000_000]))
    assert all(len(request.content) < 1000 for request in platform.requests)


@pytest.mark.parametrize("kind", [Zoo, AsyncZoo])
@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8000", "localhost", "", "http://", "ftp://host", "http://h:99999", "http://h/?a", 5, "http://[::1"],
)
def test_an_address_that_is_none_is_refused(kind: Any, url: Any) -> None:
    with pytest.raises(errors.BadInput, match="base_url"):
        kind(url)


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", " http://h:1 "])
def test_an_address_is_forgiven_its_end(url: str) -> None:
    with Zoo(url) as zoo:
        assert zoo.base_url == "http://h:1"


def test_address_and_key_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, calling: Calling, platform_of: Callable[..., Any]
) -> None:
    monkeypatch.setenv("ZOOSERVE_URL", "http://elsewhere:81/v1")
    monkeypatch.setenv("ZOOSERVE_API_KEY", "secret")
    with Zoo() as zoo:
        assert zoo.base_url == "http://elsewhere:81"
        assert "secret" not in repr(zoo)
    platform = platform_of()
    calling(platform, lambda zoo: zoo.models())
    calling(platform, lambda zoo: zoo.models(), api_key="other")
    assert [request.headers["authorization"] for request in platform.requests] == ["Bearer secret", "Bearer other"]


@pytest.mark.parametrize("options", [{"api_key": "a\nb"}, {"api_key": ""}, {"retries": -1}, {"timeout_s": None}])
def test_settings_that_cannot_be_right_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(errors.BadInput, match=next(iter(options))):
        Zoo("http://h", **options)


def test_a_closed_client_says_so(calling: Calling, platform_of: Callable[..., Any]) -> None:
    kept: list[Any] = []
    calling(platform_of(), lambda zoo: kept.append(zoo) or zoo.models())
    if isinstance(kept[0], Zoo):
        kept[0].close()
        with pytest.raises(errors.ClientClosed, match="closed"):
            kept[0].models()


async def test_a_closed_asynchronous_client_says_so() -> None:
    zoo = AsyncZoo("http://h")
    await zoo.aclose()
    await zoo.aclose()
    with pytest.raises(errors.ClientClosed, match="closed"):
        await zoo.models()


def test_a_client_that_was_brought_stays_open(platform_of: Callable[..., Any]) -> None:
    with httpx.Client(transport=httpx.MockTransport(platform_of())) as http:
        with Zoo("http://h", http=http) as zoo:
            zoo.models()
        assert not http.is_closed


def test_a_stream_takes_no_more_texts_than_it_has_room_for(platform_of: Callable[..., Any]) -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "a duck"

    transport = httpx.MockTransport(platform_of())
    with httpx.Client(transport=transport) as http, Zoo("http://h", http=http) as zoo:
        stream = zoo.embed_stream(endless(), concurrency=3)
        for place in range(1, 30):
            assert len(next(stream)) == MAX_ITEMS
            # A part ends where the next text would begin another.
            assert taken <= (place + 3) * MAX_ITEMS + 1
        stream.close()


async def test_an_asynchronous_stream_takes_no_more_texts_than_it_has_room_for(
    platform_of: Callable[..., Any],
) -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "a duck"

    transport = httpx.MockTransport(platform_of())
    async with httpx.AsyncClient(transport=transport) as http, AsyncZoo("http://h", http=http) as zoo:
        stream = zoo.embed_stream(endless(), concurrency=3)
        for place in range(1, 30):
            assert len(await anext(stream)) == MAX_ITEMS
            assert taken <= (place + 3) * MAX_ITEMS + 1
        await stream.aclose()


def test_a_stream_of_two_releases_is_refused(platform_of: Callable[..., Any]) -> None:
    platform = platform_of(version=lambda place: "2" if place > 1 else "1")
    with httpx.Client(transport=httpx.MockTransport(platform)) as http, Zoo("http://h", http=http) as zoo:
        stream = zoo.embed_stream(["a"] * 2000, concurrency=1)
        assert [len(next(stream)), len(next(stream))] == [256, 256]
        with pytest.raises(errors.SpaceMismatch, match="embed@2"):
            next(stream)


@pytest.mark.parametrize("texts", ["a duck", b"a", None, 5])
def test_a_stream_refuses_what_is_no_list_at_once(texts: Any) -> None:
    with Zoo("http://h") as zoo, pytest.raises(errors.BadInput, match="texts"):
        zoo.embed_stream(texts)


def test_a_stream_names_the_text_at_fault(platform_of: Callable[..., Any]) -> None:
    with httpx.Client(transport=httpx.MockTransport(platform_of())) as http, Zoo("http://h", http=http) as zoo:
        stream = zoo.embed_stream(["a"] * 300 + [""])
        with pytest.raises(errors.BadInput, match=r"texts\[300\]"):
            list(stream)
        assert list(zoo.embed_stream([])) == []


def test_one_client_serves_many_threads(platform_of: Callable[..., Any]) -> None:
    failed: list[BaseException] = []
    with httpx.Client(transport=httpx.MockTransport(platform_of())) as http, Zoo("http://h", http=http) as zoo:

        def work(mine: int) -> None:
            try:
                for _ in range(20):
                    assert zoo.embed(["x" * mine] * 300).vectors[299][0] == mine
            except BaseException as exc:
                failed.append(exc)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


async def test_the_blocking_client_works_where_an_event_loop_runs(platform_of: Callable[..., Any]) -> None:
    with httpx.Client(transport=httpx.MockTransport(platform_of())) as http, Zoo("http://h", http=http) as zoo:
        assert len(zoo.embed(["a"] * 300)) == 300


def test_the_bodies_are_utf_8(calling: Calling, platform_of: Callable[..., Any]) -> None:
    platform = platform_of()
    calling(platform, lambda zoo: zoo.embed("Ente 🦆"))
    assert "Ente 🦆".encode() in platform.requests[0].content
    assert json.loads(platform.requests[0].content)["input"] == ["Ente 🦆"]
