"""The embedding of one part: culprits are singled out, overload is waited for, a pace is kept."""

import base64
import json
from array import array
from collections.abc import Callable

import httpx
import pytest

from zooserve.errors import BackendUnavailable, InternalError, OtherEmbeddingSpace, Overloaded
from zooserve.sdk.blocking.client import Zoo
from zooserve_cli.reembedding.embedding import Embedder, Orders, Pace

SPACE = "bc7ce5e304176975"
ORDERS = Orders("http://router", None, "embed@1", SPACE, 2, patience_s=60)
HEADERS = {
    "x-zooserve-model": "embed", "x-zooserve-version": "1", "x-zooserve-embedding-space": SPACE, "x-request-id": "r",
}  # fmt: skip


def vectors_of(texts: list[str]) -> httpx.Response:
    data = [
        {
            "object": "embedding",
            "index": place,
            "embedding": base64.b64encode(array("f", [float(len(text)), 1.0]).tobytes()).decode(),
        }
        for place, text in enumerate(texts)
    ]
    body = {"object": "list", "data": data, "model": "embed", "usage": {"prompt_tokens": 1, "total_tokens": 1}}
    return httpx.Response(200, json=body, headers=HEADERS)


def refused(status: int, code: str, **headers: str) -> httpx.Response:
    return httpx.Response(
        status, json={"error": {"message": f"It is {code}.", "code": code}}, headers={"x-request-id": "r", **headers}
    )


def embedder(answer: Callable[[list[str]], httpx.Response], slept: list[float] | None = None) -> tuple[Embedder, Zoo]:
    def handle(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        assert asked["model"] == "embed@1"
        assert request.headers["x-zooserve-class"] == "bulk"
        assert request.headers["x-zooserve-embedding-space"] == SPACE
        return answer(asked["input"] if isinstance(asked["input"], list) else [asked["input"]])

    http = httpx.Client(transport=httpx.MockTransport(handle))
    zoo = Zoo("http://router", http=http, retries=0)
    return Embedder(ORDERS, zoo, Pace(0), sleep=(slept if slept is not None else []).append), http


def test_vectors_come_in_the_order_of_their_texts() -> None:
    made, http = embedder(vectors_of)
    with http:
        done = made.embed([f"{'x' * number}" for number in range(1, 200)])
    assert done.places == list(range(199))
    assert list(done.vectors[::2]) == [float(number) for number in range(1, 200)]
    assert not done.refused


def test_a_text_that_is_refused_takes_no_other_with_it() -> None:
    def answer(texts: list[str]) -> httpx.Response:
        if "long" in texts:
            return refused(400, "context_length_exceeded")
        if "odd" in texts:
            return refused(400, "invalid_value")
        return vectors_of(texts)

    texts = [f"fine {number}" for number in range(70)]
    texts[3], texts[68] = "long", "odd"
    made, http = embedder(answer)
    with http:
        done = made.embed(texts)
    assert {place: reason for place, (reason, _) in done.refused.items()} == {
        3: "too long",
        68: "refused by the platform",
    }
    assert sorted(done.places) == [place for place in range(70) if place not in (3, 68)]
    assert [len(texts[place]) for place in done.places] == [int(value) for value in done.vectors[::2]]


def test_an_overloaded_platform_is_waited_for_as_it_asks() -> None:
    answers = iter([refused(429, "overloaded", **{"retry-after": "7"}), refused(503, "backend_unavailable")])
    slept: list[float] = []
    made, http = embedder(lambda texts: next(answers, None) or vectors_of(texts), slept)
    with http:
        assert made.embed(["a"]).places == [0]
    assert slept[0] >= 7
    assert len(slept) == 2


def test_one_that_says_come_back_at_once_is_waited_for_all_the_same() -> None:
    answers = iter([refused(429, "overloaded", **{"retry-after": "0"})] * 5)
    slept: list[float] = []
    made, http = embedder(lambda texts: next(answers, None) or vectors_of(texts), slept)
    with http:
        assert made.embed(["a"]).places == [0]
    assert len(slept) == 5
    assert min(slept) >= 1
    assert sorted(slept) == slept


def test_one_that_refuses_for_overload_for_long_ends_the_job_with_no_text_refused() -> None:
    slept: list[float] = []
    made, http = embedder(lambda texts: refused(429, "overloaded", **{"retry-after": "5"}), slept)
    with http, pytest.raises(Overloaded):
        made.embed(["a", "b"])
    assert ORDERS.patience_s / 2 < sum(slept) <= ORDERS.patience_s


def test_a_router_that_is_gone_for_a_while_is_waited_for() -> None:
    gone = [4]

    def answer(texts: list[str]) -> httpx.Response:
        if gone[0]:
            gone[0] -= 1
            raise httpx.ConnectError("refused")
        return vectors_of(texts)

    slept: list[float] = []
    made, http = embedder(answer, slept)
    with http:
        done = made.embed(["a", "b"])
    assert done.places == [0, 1]
    assert not done.refused
    assert slept == [1, 2, 4, 8]


def test_a_text_that_the_platform_fails_at_each_time_is_singled_out_while_others_are_embedded() -> None:
    def answer(texts: list[str]) -> httpx.Response:
        return refused(502, "backend_failed") if "poison" in texts else vectors_of(texts)

    texts = [f"fine {number}" for number in range(64)]
    texts[20] = "poison"
    made, http = embedder(answer)
    with http:
        done = made.embed(texts)
    assert {place: reason for place, (reason, _) in done.refused.items()} == {20: "fails in the platform"}
    assert sorted(done.places) == [place for place in range(64) if place != 20]


def test_a_platform_that_fails_at_everything_makes_no_text_a_dead_letter() -> None:
    slept: list[float] = []
    made, http = embedder(lambda texts: refused(500, "internal_error"), slept)
    with http, pytest.raises(InternalError):
        made.embed(["a", "b"])
    assert ORDERS.patience_s / 2 < sum(slept) <= ORDERS.patience_s


def test_a_platform_that_fails_for_a_while_makes_no_text_a_dead_letter() -> None:
    left = [7]  # the probes among them

    def answer(texts: list[str]) -> httpx.Response:
        left[0] -= 1
        return refused(502, "backend_failed") if left[0] >= 0 else vectors_of(texts)

    made, http = embedder(answer)
    with http:
        assert made.embed(["a"]).places == [0]


def test_one_that_stays_away_ends_the_job_when_patience_is_over() -> None:
    slept: list[float] = []
    made, http = embedder(lambda texts: refused(503, "backend_unavailable"), slept)
    with http, pytest.raises(BackendUnavailable):
        made.embed(["a"])
    assert sum(slept) <= ORDERS.patience_s
    assert sum(slept) > ORDERS.patience_s / 2


def test_another_space_ends_the_job_at_once() -> None:
    slept: list[float] = []
    made, http = embedder(lambda texts: refused(409, "embedding_space_mismatch"), slept)
    with http, pytest.raises(OtherEmbeddingSpace):
        made.embed(["a", "b"])
    assert not slept


def test_a_pace_is_kept_over_bursts_and_pauses() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    pace = Pace(10, clock=lambda: now[0], sleep=sleep)
    sent: list[float] = []
    for texts in (5, 5, 20, 1):
        pace.wait(texts)
        sent.append(now[0])
    assert sent == pytest.approx([0.0, 0.5, 1.0, 3.0])
    now[0] += 60  # an idle minute is not made up for
    pace.wait(5)
    pace.wait(5)
    assert now[0] == pytest.approx(63.5)
    pace.settle()
    assert now[0] == pytest.approx(64.0)
