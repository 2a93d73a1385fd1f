"""Our own servers are reached past the proxies of the environment, whoever asks them."""

import ast
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from zooserve.unproxied import open_unproxied
from zooserve_cli.router_life import answers

ROOT = Path(__file__).parents[2]
CLIENTS = ("AsyncClient", "Client")


class Well(BaseHTTPRequestHandler):
    """Answers whatever it is asked."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server on this machine, in an environment with a proxy that is not there."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Well) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_on_this_machine_is_reached(behind_a_proxy: str) -> None:
    with open_unproxied(f"http://{behind_a_proxy}/", timeout=5) as answer:
        assert answer.status == 200
    assert answers(behind_a_proxy, 5)


def test_nobody_asks_a_server_of_ours_as_the_environment_says() -> None:
    """The SDK has rules of its own, for servers anywhere."""
    files = [file for part in ("platform", "router", "observability") for file in (ROOT / part).rglob("*.py")]
    ours = [file for file in files if "sdk" not in file.parts]
    assert len(ours) > 100
    found = [(file.name, told) for file in ours for told in proxied(ast.parse(file.read_text()))]
    assert found == []


def proxied(module: ast.Module) -> Iterator[str]:
    """The calls that would ask a proxy of the environment."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        of_httpx = isinstance(node.func.value, ast.Name) and node.func.value.id == "httpx" and node.func.attr in CLIENTS
        if of_httpx and "trust_env" not in {word.arg for word in node.keywords}:
            yield ast.unparse(node)
        if node.func.attr == "urlopen":
            yield ast.unparse(node)
