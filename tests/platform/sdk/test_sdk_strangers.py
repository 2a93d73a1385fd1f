"""What callers give who have not read the page: addresses, types, clients. Each is taken, or refused by its name."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from zooserve import AsyncZoo, Zoo, errors

Calling = Callable[..., Any]
NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize("url", ["http://user:sec%20ret@127.0.0.1:9", "http://user:sec%20ret@127.0.0.1:9/v1/"])
def test_a_password_in_the_address_is_sent_and_never_shown(calling: Calling, platform_of: Any, url: str) -> None:
    with pytest.raises(errors.Unreachable) as caught:
        calling(None, lambda zoo: zoo.models(), base_url=url, retries=0)
    shown = f"{caught.value}{Zoo(url)!r}{AsyncZoo(url).base_url}"
    assert "sec" not in shown
    assert NOBODY in shown
    platform = platform_of()
    with httpx.Client(transport=httpx.MockTransport(platform)) as http, Zoo(url, http=http) as zoo:
        zoo.models()
    assert platform.requests[0].headers["authorization"] == "Basic dXNlcjpzZWMgcmV0"
    assert str(platform.requests[0].url) == f"{NOBODY}/v1/models"


def test_a_key_comes_before_the_user_of_an_address(platform_of: Any) -> None:
    platform = platform_of()
    with httpx.Client(transport=httpx.MockTransport(platform)) as http:
        Zoo("http://user:secret@zoo", api_key="k", http=http).models()
    assert platform.requests[0].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize("url", ["http://user:secret@", "ftp://user:secret@zoo", "http://user:secret@zoo:99999"])
def test_a_wrong_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(errors.BadInput, match="base_url") as caught:
        Zoo(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("kind", [Zoo, AsyncZoo])
@pytest.mark.parametrize("http", ["a text", object(), httpx])
def test_a_client_of_another_kind_is_refused_when_it_is_given(kind: Any, http: Any) -> None:
    with pytest.raises(errors.BadInput, match=r"`http` is of type \w+; it must be an httpx\."):
        kind(NOBODY, http=http)


async def test_each_client_takes_httpxs_of_its_own_kind() -> None:
    async with httpx.AsyncClient() as awaiting:
        with pytest.raises(errors.BadInput, match=r"AsyncClient; it must be an httpx\.Client\."):
            Zoo(NOBODY, http=awaiting)  # type: ignore[arg-type]


def test_arrays_of_numpy_are_lists_and_its_numbers_numbers(calling: Calling, platform_of: Any) -> None:
    numpy = pytest.importorskip("numpy")
    platform = platform_of()
    texts = numpy.array(["a", "bb"])
    assert len(calling(platform, lambda zoo: zoo.embed(texts, timeout_s=numpy.float32(9), concurrency=numpy.int64(2))))
    assert len(calling(platform, lambda zoo: zoo.rerank("q", texts, top_n=numpy.int32(1)))) == 1
    for wrong in (numpy.array("a"), numpy.array([1.5]), numpy.array([["a"]])):
        with pytest.raises(errors.BadInput, match="input"):
            calling(platform, lambda zoo, wrong=wrong: zoo.embed(wrong))


@pytest.mark.parametrize("place", [{"path": 5}, {"url": ""}, {"url": " "}, {"url": 5}])
def test_a_place_that_is_none_is_refused(place: dict[str, Any]) -> None:
    with Zoo(NOBODY) as zoo, pytest.raises(errors.BadInput, match=f"`{next(iter(place))}` is "):
        zoo.collection("docs", **place)


def test_a_hundred_thousand_texts_come_back_in_order(calling: Calling, platform_of: Any) -> None:
    texts = ["x" * (1 + place % 7) for place in range(100_000)]
    made = calling(platform_of(), lambda zoo: zoo.embed(texts, concurrency=8))
    assert len(made) == 100_000
    assert [int(made.buffer[2 * place]) for place in range(0, 100_000, 997)] == [
        len(texts[place]) for place in range(0, 100_000, 997)
    ]
