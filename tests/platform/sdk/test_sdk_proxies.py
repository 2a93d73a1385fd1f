"""Proxies that the environment names: this machine is reached without them, others by them, and errors say which."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from zooserve import AsyncZoo, Zoo, errors
from zooserve.errors import StoreUnavailable
from zooserve.sdk.proxies import between, is_loopback

Calling = Callable[..., Any]
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Proxy:
    """Answers whatever it is asked alike, and keeps the first lines of what it was asked."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(ConnectionError):
                    self.asked.append(connection.recv(65536).partition(b"\r\n")[0])
                    connection.sendall(self._answer)

    def close(self) -> None:
        with suppress(OSError):  # closed before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


@pytest.fixture
def proxy() -> Iterator[Callable[[bytes], Proxy]]:
    """Starts such a one."""
    made: list[Proxy] = []

    def make(answer: bytes) -> Proxy:
        made.append(Proxy(answer))
        return made[-1]

    yield make
    for one in made:
        one.close()


def answer(status: str, body: bytes = b"", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}connection: close\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("http://127.0.0.1:8000", True), ("http://127.8.0.1", True), ("https://localhost", True),
        ("http://LOCALHOST.:1", True), ("http://zoo.localhost", True), ("http://[::1]:8000", True),
        ("http://0.0.0.0:8000", True), ("http://10.0.0.1", False), ("http://localhost.example", False),
        ("http://zoo:8000", False),
    ],
)  # fmt: skip
def test_which_addresses_are_this_machines(url: str, own: bool) -> None:
    assert is_loopback(url) is own


@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY"])
def test_this_machine_is_reached_past_any_proxy(calling: Calling, proxy: Any, monkeypatch: Any, name: str) -> None:
    never, here = proxy(answer("502 Bad")), proxy(answer("200 OK", b'{"data": []}'))
    monkeypatch.setenv(name, never.url)
    assert calling(None, lambda zoo: zoo.models(), base_url=here.url) == []
    assert (never.asked, len(here.asked)) == ([], 1)


def test_a_proxy_that_cannot_be_used_is_no_matter_on_this_machine(
    calling: Calling, proxy: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("ALL_PROXY", "nonsense://127.0.0.1:9")
    here = proxy(answer("200 OK", b'{"data": []}'))
    assert calling(None, lambda zoo: zoo.models(), base_url=here.url) == []


def test_other_machines_are_reached_by_it(calling: Calling, proxy: Any, monkeypatch: Any) -> None:
    relay = proxy(answer("200 OK", b'{"data": []}'))
    monkeypatch.setenv("HTTP_PROXY", relay.url)
    assert calling(None, lambda zoo: zoo.models(), base_url="http://zoo.example:8000") == []
    assert relay.asked == [b"GET http://zoo.example:8000/v1/models HTTP/1.1"]


def test_a_proxy_that_is_down_is_named_without_its_password(calling: Calling, monkeypatch: Any) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://user:secret@127.0.0.1:9")
    with pytest.raises(
        errors.Unreachable, match=r"by the proxy http://127\.0\.0\.1:9.*NO_PROXY=zoo\.example"
    ) as caught:
        calling(None, lambda zoo: zoo.models(), base_url="http://zoo.example:8000", retries=0)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        ("502 Bad Gateway", errors.BackendFailed, "by the proxy"),
        ("403 Forbidden", errors.KeyRefused, "by the proxy"),
        ("407 Proxy Authentication Required", errors.KeyRefused, "a proxy on the way.*user and a password"),
        ("200 OK", errors.UnreadableAnswer, "by the proxy"),
    ],
)
def test_an_answer_that_may_be_the_proxys_own_says_so(
    calling: Calling, proxy: Any, monkeypatch: Any, status: str, kind: Any, said: str
) -> None:
    relay = proxy(answer(status, b"<html>log in first</html>", "content-type: text/html\r\n"))
    monkeypatch.setenv("ALL_PROXY", relay.url)
    with pytest.raises(kind, match=said) as caught:
        calling(None, lambda zoo: zoo.models(), base_url="http://zoo.example", retries=0)
    assert relay.url in str(caught.value)


def test_an_answer_of_the_platform_is_not_blamed_on_it(calling: Calling, proxy: Any, monkeypatch: Any) -> None:
    relay = proxy(answer("502 Bad", b'{"error": {"message": "embed failed"}}', "x-request-id: r\r\n"))
    monkeypatch.setenv("HTTP_PROXY", relay.url)
    with pytest.raises(errors.BackendFailed) as caught:
        calling(None, lambda zoo: zoo.models(), base_url="http://zoo.example")
    assert str(caught.value) == "embed failed"


def test_a_secure_connection_that_the_proxy_refuses_is_told(calling: Calling, proxy: Any, monkeypatch: Any) -> None:
    relay = proxy(answer("403 Forbidden"))
    monkeypatch.setenv("HTTPS_PROXY", relay.url)
    with pytest.raises(errors.Unreachable, match=r"403 Forbidden.*by the proxy"):
        calling(None, lambda zoo: zoo.models(), base_url="https://zoo.example", retries=0)
    assert relay.asked == [b"CONNECT zoo.example:443 HTTP/1.1"]


def test_no_proxy_goes_past_it(calling: Calling, monkeypatch: Any) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "zoo.invalid")
    with pytest.raises(errors.Unreachable) as caught:
        calling(None, lambda zoo: zoo.models(), base_url="http://zoo.invalid", retries=0)
    assert "proxy" not in str(caught.value)


@pytest.mark.parametrize("value", ["nonsense://proxy", "socks5://proxy:1080"])
def test_a_proxy_that_cannot_be_used_is_told_with_the_variables(calling: Calling, monkeypatch: Any, value: str) -> None:
    monkeypatch.setenv("ALL_PROXY", value)
    with pytest.raises(errors.BadInput, match=r"cannot be used.*ALL_PROXY"):
        calling(None, lambda zoo: zoo.models(), base_url="http://zoo.example")


async def test_the_proxy_of_a_client_that_was_brought_is_named_too() -> None:
    with httpx.Client(proxy="http://127.0.0.1:9") as http, Zoo("http://zoo.example", http=http, retries=0) as zoo:
        assert between(http, "http://zoo.example") == "http://127.0.0.1:9"
        with pytest.raises(errors.Unreachable, match=r"by the proxy http://127\.0\.0\.1:9"):
            zoo.models()
    async with httpx.AsyncClient(proxy="http://[::1]:9") as other, AsyncZoo("http://zoo.example", http=other) as zoo_:
        assert between(other, zoo_.base_url) == "http://[::1]:9"


def test_qdrant_on_this_machine_is_reached_past_it_and_elsewhere_by_it(proxy: Any, monkeypatch: Any) -> None:
    relay = proxy(answer("503 Unavailable", b"<html>no</html>"))
    aliases = b'{"result": {"aliases": []}, "status": "ok"}'
    here = proxy(answer("200 OK", aliases))
    monkeypatch.setenv("ALL_PROXY", relay.url)
    with Zoo("http://127.0.0.1:9", retries=0) as zoo:
        with pytest.raises(errors.StoreRefused):  # the stand-in has one answer for everything
            zoo.collection("docs", url=here.url).count()
        assert (relay.asked, len(here.asked)) == ([], 2)
        with pytest.raises(StoreUnavailable, match=rf"fails \(503\).*by the proxy {relay.url}"):
            zoo.collection("docs", url="http://qdrant.example:6333").count()
        relay.close()
        with pytest.raises(StoreUnavailable, match=rf"No Qdrant answers.*by the proxy {relay.url}"):
            zoo.collection("docs", url="http://qdrant.example:6334").count()
