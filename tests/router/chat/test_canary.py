"""A canary of a chat model answers its share of the requests, on every route, to the end of each stream."""

import asyncio
import json
from typing import Any

import pytest

from zooserve_router.releases import is_drawn

IDS = [f"req_{number}" for number in range(12)]
DRAWN = {request_id: is_drawn("canary", "chat", request_id, 0.5) for request_id in IDS}
SAY: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
}
CANARY, SERVING = (("chat_next", "2"), ("chat", "1"))


def asked(edge, path: str, request_id: str, model: str = "chat", **fields: Any):
    headers = {"x-request-id": request_id, "x-tenant": "blue"}
    return edge.http.post(path, json={"model": model, **SAY[path], **fields}, headers=headers)


def counted(edge, role: str, outcome: str) -> float:
    series = f'outcome="{outcome}",'
    lines = edge.metrics.exposition().decode().splitlines()
    of_role = [
        line for line in lines if line.startswith("zooserve_release_requests_total{") and f'role="{role}"' in line
    ]
    return sum(float(line.rpartition(" ")[2]) for line in of_role if series in line)


def ran(answer) -> tuple[str, str]:
    return answer.headers["x-zooserve-model"], answer.headers["x-zooserve-version"]


@pytest.mark.parametrize("path", SAY)
async def test_the_headers_say_what_ran_and_the_body_what_was_asked_for(split, path: str):
    for request_id in IDS:
        answer = await asked(split, path, request_id)
        assert answer.status_code == 200, answer.text
        assert ran(answer) == (CANARY if DRAWN[request_id] else SERVING)
        assert answer.json()["model"] == "chat"
        if path != "/v1/responses":
            assert answer.json()["system_fingerprint"] == "@".join(ran(answer))
    assert counted(split, "canary", "ok") == sum(DRAWN.values()) > 2
    assert counted(split, "serving", "ok") == len(IDS) - sum(DRAWN.values()) > 2


async def test_the_trace_says_whose_request_a_canary_answered(split):
    for request_id in IDS:
        await asked(split, "/v1/chat/completions", request_id)
    roots = [span.attributes for span in split.spans if span.name == "zooserve.request"]
    told = [(root["zooserve.model"], root.get("zooserve.release_of")) for root in roots]
    assert told == [("chat_next", "chat") if DRAWN[request_id] else ("chat", None) for request_id in IDS]


@pytest.mark.parametrize("path", SAY)
async def test_a_stream_is_its_releases_until_its_end(split, path: str):
    for request_id in IDS:
        answer = await asked(split, path, request_id, stream=True)
        assert ran(answer) == (CANARY if DRAWN[request_id] else SERVING)
        first = json.loads(next(line for line in answer.text.splitlines() if line.startswith("data: "))[6:])
        assert first.get("response", first)["model"] == "chat"
    assert counted(split, "canary", "ok") == sum(DRAWN.values())


async def test_a_stream_that_is_left_counts_as_cancelled_for_its_release(split):
    split.leaf.hold = asyncio.Event()
    canary = next(request_id for request_id, drawn in DRAWN.items() if drawn)
    caller = asyncio.create_task(asked(split, "/v1/chat/completions", canary, stream=True))
    await split.leaf.said.wait()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert counted(split, "canary", "cancelled") == 1
    assert counted(split, "serving", "cancelled") == 0


async def test_only_the_release_that_declares_a_header_gets_it(split):
    for request_id in IDS:
        await asked(split, "/v1/chat/completions", request_id)
    told = [dict(work.headers) for work in split.leaf.asked]
    assert told == [{"x-tenant": "blue"} if DRAWN[request_id] else {} for request_id in IDS]


@pytest.mark.parametrize("name", ["chat@1", "chat_next"])
async def test_who_names_a_release_is_not_split(split, name: str):
    for request_id in IDS[:6]:
        answer = await asked(split, "/v1/chat/completions", request_id, name)
        assert ran(answer) == (SERVING if name == "chat@1" else CANARY)
        assert answer.json()["model"] == name.partition("@")[0]
    assert counted(split, "canary", "ok") == counted(split, "serving", "ok") == 0
