"""/v1/responses over a scripted leaf: whole and streamed, however it ends."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from openai.types.responses import Response

from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, Overloaded
from zooserve_router.chat.generation import Piece

BODY: dict[str, Any] = {"model": "chat", "input": "Hi"}


async def ask(edge, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    response: httpx.Response = await edge.http.post("/v1/responses", json={**BODY, **fields}, headers=headers or {})
    return response


def events_in(response: httpx.Response) -> list[dict[str, Any]]:
    """The payloads of a stream, each of which must carry the name of its event."""
    payloads = []
    for block in response.text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        payload = json.loads(data.removeprefix("data: "))
        assert name == f"event: {payload['type']}"
        payloads.append(payload)
    return payloads


async def test_a_response_is_whole_by_openais_own_type(edge) -> None:
    answer = await ask(edge, instructions="Be brief.")
    response = Response.model_validate(answer.json())
    assert response.id.startswith("resp_")
    assert (response.object, response.status, response.model) == ("response", "completed", "chat")
    assert response.output_text == "Hello"
    assert response.error is None
    assert response.incomplete_details is None
    assert response.usage is not None
    assert response.usage.output_tokens == 5
    assert response.usage.total_tokens == response.usage.input_tokens + 5
    assert edge.leaf.asked[0].prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert answer.headers["x-zooserve-model"] == "chat"


async def test_a_response_repeats_what_was_asked(edge) -> None:
    asked: dict[str, Any] = {
        "instructions": "Be brief.",
        "max_output_tokens": 20,
        "max_tool_calls": 3,
        "metadata": {"team": "blue"},
        "prompt_cache_key": "a",
        "safety_identifier": "b",
        "temperature": 0.5,
        "top_p": 0.9,
        "user": "c",
    }
    answer = (await ask(edge, **asked)).json()
    assert {name: answer[name] for name in asked} == asked
    sampling = edge.leaf.asked[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.5, 0.9, 20)


async def test_a_response_says_the_defaults_of_what_was_not_asked(edge) -> None:
    answer = (await ask(edge)).json()
    defaults = {
        "background": False,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "service_tier": "default",
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }
    assert {name: answer[name] for name in defaults} == defaults


async def test_nothing_is_stored_and_the_response_says_so(edge) -> None:
    answer = (await ask(edge, store=True)).json()
    assert answer["store"] is False
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        gone = await edge.http.request(method, f"/v1/responses/{answer['id']}{path}")
        assert gone.status_code == 404
        assert gone.json()["error"]["code"] == "response_not_found"
        assert "no response is stored here" in gone.json()["error"]["message"]


async def test_without_a_seed_two_responses_differ(edge) -> None:
    await ask(edge)
    await ask(edge)
    assert edge.leaf.asked[0].sampling.seed != edge.leaf.asked[1].sampling.seed


async def test_an_answer_can_be_sent_back_as_it_came(edge) -> None:
    answer = (await ask(edge)).json()
    history = [{"role": "user", "content": "Hi"}, *answer["output"], {"role": "user", "content": "More"}]
    assert (await ask(edge, input=history)).status_code == 200
    assert "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nMore" in edge.leaf.asked[-1].prompt


async def test_a_response_cut_by_its_bound_is_incomplete(edge, pieces) -> None:
    edge.leaf.script = pieces(["abc"], "length")
    answer = (await ask(edge, max_output_tokens=9)).json()
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["usage"]["output_tokens"] == 9


async def test_a_stream_says_the_same_as_the_whole_response(edge) -> None:
    whole = (await ask(edge)).json()
    stream = await ask(edge, stream=True)
    assert stream.headers["content-type"].startswith("text/event-stream")
    events = events_in(stream)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [events[0]["type"], events[1]["type"], events[-1]["type"]] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]
    last = events[-1]["response"]
    assert last["output"][0]["content"] == whole["output"][0]["content"]
    assert last["usage"] == whole["usage"]
    assert last.keys() == whole.keys()
    assert "[DONE]" not in stream.text


@pytest.mark.parametrize(
    ("fault", "status"),
    [(BackendUnavailable("gone"), 503), (BackendFailed("broken"), 502), (Overloaded("full", retry_after_s=2), 429)],
    ids=["unavailable", "failed", "overloaded"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_failure_before_the_first_piece_is_a_status_code(edge, fault, status, stream) -> None:
    edge.leaf.script = [fault]
    response = await ask(edge, stream=stream)
    assert response.status_code == status
    assert response.json()["error"]["message"] == fault.message
    if status == 429:
        assert response.headers["retry-after-ms"] == "2000"
    assert edge.leaf.open == 0


async def test_a_failure_after_the_headers_fails_the_response(edge) -> None:
    edge.leaf.script = [Piece("Hel"), BackendFailed("broken")]
    *_, error, failed = events_in(await ask(edge, stream=True))
    assert (error["type"], error["error"]["code"]) == ("error", "backend_failed")
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": "broken"}
    assert b'outcome="BackendFailed"' in edge.metrics.exposition()
    assert edge.leaf.open == 0


async def test_a_whole_response_that_fails_in_the_middle_is_a_status_code(edge) -> None:
    edge.leaf.script = [Piece("Hel"), BackendFailed("broken")]
    assert (await ask(edge)).status_code == 502


async def test_a_deadline_before_the_first_piece_is_504(edge) -> None:
    edge.leaf.script = [DeadlineExceeded("late")]
    assert (await ask(edge, stream=True)).status_code == 504


async def test_a_deadline_in_the_middle_fails_the_response_and_frees_the_leaf(edge) -> None:
    edge.leaf.hold = asyncio.Event()
    *_, error, failed = events_in(await ask(edge, {"x-request-timeout-ms": "50"}, stream=True))
    assert error["error"]["code"] == "deadline_exceeded"
    assert failed["response"]["status"] == "failed"
    assert edge.leaf.open == 0


async def test_beyond_the_kv_budget_is_429_with_the_time_to_come_back(edge) -> None:
    edge.queue.most_waiting = 0
    edge.budget.take(950)
    edge.queue.most_waiting = 0
    response = await ask(edge)
    assert response.status_code == 429
    assert int(response.headers["retry-after-ms"]) >= 1
    assert edge.leaf.asked == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_client_that_hangs_up_frees_the_leaf_and_the_budget(edge, stream) -> None:
    edge.leaf.hold = asyncio.Event()
    gone = asyncio.Event()
    messages = [{"type": "http.request", "body": json.dumps({**BODY, "stream": stream}).encode(), "more_body": False}]

    async def receive():
        if messages:
            return messages.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message) -> None: ...

    scope = {"type": "http", "method": "POST", "path": "/v1/responses", "headers": [], "query_string": b""}
    serving = asyncio.create_task(edge.app(scope, receive, send))
    await edge.leaf.said.wait()
    assert edge.leaf.open == 1
    gone.set()
    await serving
    assert edge.leaf.open == 0
    await asyncio.sleep(0.001)  # the settling time is zero here, and still a turn of the loop
    assert edge.budget.taken_tokens == 0
    assert b'outcome="cancelled"' in edge.metrics.exposition()


async def test_line_breaks_of_other_alphabets_do_not_break_events(edge, pieces) -> None:
    edge.leaf.script = pieces(["a\u2028b\u0085c"])
    response = await ask(edge, stream=True)
    lines = [line for line in response.text.splitlines() if line]
    assert all(line.startswith(("data: ", "event: ")) for line in lines)
    assert events_in(response)[-1]["response"]["output"][0]["content"][0]["text"] == "a\u2028b\u0085c"
