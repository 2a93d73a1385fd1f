"""Chat through the router over Triton's vLLM backend and TensorRT-LLM's engine path, played over the real engine."""

import asyncio
import json
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.e2e

EVERY_MODEL = pytest.mark.parametrize("model", ["vllm", "bls", "ensemble"])
STORY = "Write a very long story about a dragon."


async def chat(fronts: Any, body: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(base_url=fronts.url, timeout=60) as http:
        return await http.post("/v1/chat/completions", json=body)


async def chunks_of(fronts: Any, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The parsed events of a stream, without `[DONE]`."""
    async with (
        httpx.AsyncClient(base_url=fronts.url, timeout=60) as http,
        http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response,
    ):
        lines = [line.removeprefix("data: ") async for line in response.aiter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


async def test_all_contracts_give_the_same_greedy_answer(fronts: Any, ask: Any) -> None:
    answers = [(await chat(fronts, ask(model, max_tokens=16))).json() for model in ("vllm", "bls", "ensemble")]
    texts = {answer["choices"][0]["message"]["content"] for answer in answers}
    assert len(texts) == 1
    assert "Paris" in texts.pop()
    assert len({json.dumps(answer["usage"]) for answer in answers}) == 1


@EVERY_MODEL
async def test_an_answer_cut_by_its_bound_says_so_and_counts_it(fronts: Any, ask: Any, model: str) -> None:
    answer = (await chat(fronts, ask(model, STORY, max_tokens=12))).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 12


@EVERY_MODEL
async def test_an_answer_that_ended_by_itself_says_so(fronts: Any, ask: Any, model: str) -> None:
    answer = (await chat(fronts, ask(model, "Say hi.", max_tokens=300))).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert 0 < answer["usage"]["completion_tokens"] < 300


@EVERY_MODEL
async def test_a_stream_is_the_whole_answer_in_several_chunks(fronts: Any, ask: Any, model: str) -> None:
    body = ask(model, STORY, max_tokens=24)
    whole = (await chat(fronts, body)).json()["choices"][0]["message"]["content"]
    chunks = await chunks_of(fronts, body)
    assert text_of(chunks) == whole
    assert len(chunks) > 6
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


@EVERY_MODEL
async def test_no_character_is_broken(fronts: Any, ask: Any, model: str) -> None:
    chunks = await chunks_of(fronts, ask(model, "Repeat exactly: 🎉🎊🦄 日本語 ñ", max_tokens=40))
    assert "🎉" in text_of(chunks)
    assert "\N{REPLACEMENT CHARACTER}" not in json.dumps(chunks, ensure_ascii=False)


@EVERY_MODEL
async def test_a_stop_string_ends_the_answer_and_never_shows(fronts: Any, ask: Any, model: str) -> None:
    whole = (await chat(fronts, ask(model, max_tokens=24))).json()["choices"][0]["message"]["content"]
    stop = whole[7:16]
    chunks = await chunks_of(fronts, ask(model, max_tokens=24, stop=[stop]))
    assert text_of(chunks) == whole[: whole.index(stop)]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    await fronts.until_active(model, 0)


@EVERY_MODEL
async def test_a_seed_gives_the_same_answer_and_another_seed_another(fronts: Any, ask: Any, model: str) -> None:
    async def said(seed: int) -> str:
        body = ask(model, "Tell me a joke.", max_tokens=20, temperature=1.0, seed=seed)
        return (await chat(fronts, body)).json()["choices"][0]["message"]["content"]

    assert await said(7) == await said(7)
    assert await said(7) != await said(8)


@pytest.mark.parametrize("model", ["vllm", "ensemble"])
async def test_a_client_that_hangs_up_frees_the_slot(fronts: Any, ask: Any, model: str) -> None:
    body = ask(model, STORY, max_tokens=400, stream=True)
    async with (
        httpx.AsyncClient(base_url=fronts.url, timeout=60) as http,
        http.stream("POST", "/v1/chat/completions", json=body) as response,
    ):
        await anext(response.aiter_lines())
        await fronts.until_active(model, 1)
    await fronts.until_active(model, 0)


@EVERY_MODEL
async def test_requests_beyond_the_slots_wait_and_are_all_answered(fronts: Any, ask: Any, model: str) -> None:
    bodies = [ask(model, f"Name {number} dogs.", max_tokens=8) for number in range(5)]
    answers = await asyncio.gather(*(chat(fronts, body) for body in bodies))
    assert [answer.status_code for answer in answers] == [200] * 5


@EVERY_MODEL
async def test_n_answers_are_asked_for_one_by_one(fronts: Any, ask: Any, model: str) -> None:
    answer = (await chat(fronts, ask(model, "Tell me a joke.", max_tokens=8, n=2, temperature=1.0))).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]


@EVERY_MODEL
async def test_a_schema_is_enforced_by_the_engine(fronts: Any, ask: Any, model: str) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "size": {"enum": ["big", "small"]}},
        "required": ["city", "size"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
    answer = (await chat(fronts, ask(model, max_tokens=60, response_format=wanted))).json()
    said = json.loads(answer["choices"][0]["message"]["content"])
    assert set(said) == {"city", "size"}
    assert said["size"] in ("big", "small")


async def test_log_probabilities_come_token_by_token(fronts: Any, ask: Any) -> None:
    body = ask("vllm", max_tokens=6, logprobs=True, top_logprobs=3, temperature=1.0, seed=3)
    choice = (await chat(fronts, body)).json()["choices"][0]
    tokens = choice["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == choice["message"]["content"]
    for token in tokens:
        likeliest = [each["logprob"] for each in token["top_logprobs"]]
        assert len(likeliest) == 3
        assert likeliest == sorted(likeliest, reverse=True)
        assert token["logprob"] <= likeliest[0]


@pytest.mark.parametrize("model", ["bls", "ensemble"])
async def test_log_probabilities_are_refused_where_the_contract_has_none(fronts: Any, ask: Any, model: str) -> None:
    refused = await chat(fronts, ask(model, logprobs=True))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_parameter")


@EVERY_MODEL
async def test_a_prompt_that_does_not_fit_is_refused_before_the_engine_is_asked(
    fronts: Any, ask: Any, model: str
) -> None:
    refused = await chat(fronts, ask(model, "word " * 600))
    assert refused.status_code == 400
    assert await fronts.active(model) == 0
