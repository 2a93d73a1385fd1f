"""What stands between a caller and the app: HAProxy and Ray, kept from answering or listening for themselves."""

import json
import time
from typing import Any

import httpx
import psutil
import pytest

from zooserve.leaf.metrics import LeafLoad, load_in
from zooserve.processes.identity import command_of
from zooserve.processes.records import ProcessRecords

pytestmark = pytest.mark.e2e

LONG_CHAT: dict[str, Any] = {
    "model": "chat",
    "messages": [{"role": "user", "content": "Write a long essay about the history of Rome."}],
    "max_tokens": 300,
    "temperature": 0,
}


def load_of(platform: Any) -> LeafLoad:
    return load_in(httpx.get(f"http://{platform.leaf_metrics}/metrics", timeout=10).text)


def active_chats(platform: Any) -> int:
    return load_of(platform).active_requests


def written_tokens(platform: Any) -> int:
    return load_of(platform).generated_tokens


def wait_for_active_chats(platform: Any, wanted: int) -> None:
    """Fails the test after 20 s: a chat that nobody stops is over long before."""
    deadline = time.monotonic() + 20
    while (active := active_chats(platform)) != wanted:
        assert time.monotonic() < deadline, f"the leaf works on {active} chats, not on {wanted}"
        time.sleep(0.05)


def test_rays_timeout_header_does_not_cut_an_answer_short(platform: Any) -> None:
    headers = {"x-request-timeout-seconds": "0.05"}
    answer = httpx.post(f"{platform.url}/v1/chat/completions", json=LONG_CHAT, headers=headers, timeout=120)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"]


def test_rays_disconnect_header_does_not_keep_an_abandoned_chat_alive(platform: Any) -> None:
    wait_for_active_chats(platform, 0)
    before = written_tokens(platform)
    headers = {"x-request-disconnect-disabled": "?1"}
    body = {**LONG_CHAT, "stream": True}
    with httpx.stream("POST", f"{platform.url}/v1/chat/completions", json=body, headers=headers, timeout=60) as answer:
        # Kept: an iterator that nobody holds is closed, and its connection with it.
        lines = answer.iter_lines()
        next(lines)
        wait_for_active_chats(platform, 1)
    wait_for_active_chats(platform, 0)
    assert written_tokens(platform) - before < LONG_CHAT["max_tokens"]


def test_an_answer_has_one_request_id_and_keeps_the_callers(platform: Any) -> None:
    body = {"model": "embed", "input": "hi"}
    answer = httpx.post(f"{platform.url}/v1/embeddings", json=body, headers={"x-request-id": "mine"}, timeout=60)
    assert answer.headers.get_list("x-request-id") == ["mine"]
    answer = httpx.post(f"{platform.url}/v1/embeddings", json=body, timeout=60)
    assert len(answer.headers.get_list("x-request-id")) == 1


def test_only_rays_own_parts_listen_beyond_loopback(platform: Any) -> None:
    """Ray listens on all interfaces whatever it is told (behind its token); nothing else of the platform does."""
    pids = {record.pid for record in ProcessRecords(platform.folder.records_file).alive()}
    open_to_all = {
        command_of(each.pid).split()[0].rpartition("/")[2]
        for each in psutil.net_connections(kind="tcp")
        if each.pid in pids and each.status == psutil.CONN_LISTEN and each.laddr.ip in ("0.0.0.0", "::")
    }
    assert not {name for name in open_to_all if name in ("haproxy", "tritonserver", "triton_python_backend_stub")}


def test_haproxys_own_metrics_can_be_scraped(platform: Any) -> None:
    text = httpx.get(f"http://{platform.state.haproxy_metrics}/metrics", timeout=10).text
    assert "haproxy_backend_http_responses_total" in text


def test_status_tells_servers_and_models(platform: Any) -> None:
    told = platform.zooserve("status", "--json")
    assert told.returncode == 0, told.stderr
    body = json.loads(told.stdout)
    assert {server["name"] for server in body["servers"]} == {"supervisor", "router", "zoo", "leaf"}
    assert all(server["pid"] for server in body["servers"])
    assert body["health"]["status"] == "ready"
    models = json.loads(platform.zooserve("models", "--json").stdout)
    assert {model["name"] for model in models if model["enabled"]} >= {"embed", "rerank", "language", "chat"}
    assert all(model["ready"] is (True if model["enabled"] else None) for model in models)


def test_a_request_id_that_is_not_text_is_replaced(platform: Any) -> None:
    answer = httpx.get(f"{platform.url}/health/live", headers=[(b"x-request-id", b"a\xe9")], timeout=60)
    assert answer.status_code == 200
    assert answer.headers["x-request-id"].isascii()
