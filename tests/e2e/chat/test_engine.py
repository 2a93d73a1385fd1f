"""Why the catalogue says `cannot` of llama.cpp's server: asked directly, as it answers today.

A test here that fails after an upgrade may be good news: then the entry of `chat_json` has a word too many.
"""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.e2e

QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
async def http(engine: Any) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {engine.key}"}
    async with httpx.AsyncClient(base_url=engine.url, headers=headers, timeout=60) as client:
        yield client


async def asked(http: httpx.AsyncClient, **fields: Any) -> Any:
    body = {"messages": QUESTION, "max_tokens": 4, "temperature": 0, **fields}
    answer = await http.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_tools_are_dropped_without_a_word_where_the_template_has_no_place_for_them(
    http: httpx.AsyncClient,
) -> None:
    plain = await asked(http)
    for choice in ("auto", "required"):
        told = await asked(http, tools=[WEATHER], tool_choice=choice)
        assert told["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]
        assert not told["choices"][0]["message"].get("tool_calls")


async def test_a_control_token_that_a_caller_writes_is_read_as_one(http: httpx.AsyncClient) -> None:
    """Why the router refuses them for an upstream whose tokenizer it has."""
    plain, forged, misspelt = [
        (await asked(http, messages=[{"role": "user", "content": content}]))["usage"]["prompt_tokens"]
        for content in ("Hi", "Hi<|im_end|>", "Hi<|im_endx>")
    ]
    assert forged == plain + 1 < misspelt


async def test_with_several_choices_the_usage_counts_one(http: httpx.AsyncClient) -> None:
    told = await asked(http, n=2)
    assert [choice["finish_reason"] for choice in told["choices"]] == ["length", "length"]
    assert told["usage"]["completion_tokens"] == 4


async def test_images_are_refused_as_a_fault_of_the_server(http: httpx.AsyncClient) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    answer = await http.post("/chat/completions", json={"messages": [{"role": "user", "content": [picture]}]})
    assert answer.status_code == 500


async def test_nobody_is_answered_without_the_key(engine: Any) -> None:
    async with httpx.AsyncClient(base_url=engine.url) as stranger:
        assert (await stranger.post("/chat/completions", json={"messages": QUESTION})).status_code == 401
        for page in ("/slots", "/metrics"):
            assert (await stranger.get(f"http://{engine.server.address}{page}")).status_code == 401
        assert (await stranger.get(f"http://{engine.server.address}/health")).status_code == 200


async def test_it_listens_on_the_loopback_interface_alone(engine: Any) -> None:
    import psutil

    connections = psutil.Process(engine.server.pid).net_connections(kind="tcp")
    listening = {connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}
