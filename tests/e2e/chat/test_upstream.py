"""Chats through the router to a real upstream, llama.cpp's own OpenAI server, with what it can and cannot do."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

pytestmark = pytest.mark.e2e

TOKENIZER = Path(__file__).parents[3] / "model_repository" / "leaf" / "tensorrt_llm" / "1" / "tokenizer.json"
QUESTION = "What is the capital of France?"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "sea": {"type": "boolean"}},
    "required": ["city", "sea"],
    "additionalProperties": False,
}
ANSWER = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Chat:
    """Asks the router's one model."""

    def __init__(self, http: httpx.AsyncClient, model: str) -> None:
        self._http = http
        self._model = model

    async def post(self, **fields: Any) -> httpx.Response:
        fields.setdefault("messages", [{"role": "user", "content": QUESTION}])
        body = {"model": self._model, "max_tokens": 16, "temperature": 0, **fields}
        return await self._http.post("/v1/chat/completions", json=body)

    async def whole(self, **fields: Any) -> Any:
        answer = await self.post(**fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def chunks(self, **fields: Any) -> list[Any]:
        answer = await self.post(stream=True, stream_options={"include_usage": True}, **fields)
        assert answer.status_code == 200, answer.text
        *events, done = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
        assert done == "[DONE]"
        return [json.loads(event) for event in events]

    async def completion(self, prompt: str | list[int], **fields: Any) -> Any:
        body = {"model": self._model, "prompt": prompt, "max_tokens": 4, "temperature": 0, **fields}
        answer = await self._http.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
async def chat(upstream_router: Any) -> AsyncIterator[Chat]:
    async with httpx.AsyncClient(base_url=upstream_router.url, timeout=60) as http:
        yield Chat(http, upstream_router.model)


def text_of(chunks: list[Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


async def test_streamed_and_whole_say_the_same_and_count_the_same(chat: Chat) -> None:
    whole = await chat.whole()
    chunks = await chat.chunks()
    assert "Paris" in whole["choices"][0]["message"]["content"]
    assert text_of(chunks) == whole["choices"][0]["message"]["content"]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "stop"
    counted, first = chunks[-1]["usage"], whole["usage"]
    assert (counted["prompt_tokens"], counted["completion_tokens"]) == (
        first["prompt_tokens"],
        first["completion_tokens"],
    )
    assert counted["prompt_tokens_details"]["cached_tokens"] > 0  # the second time its prompt was known


async def test_the_answer_ends_at_the_grant(chat: Chat) -> None:
    answer = await chat.whole(max_tokens=2)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 2


async def test_stop_strings_end_the_answer_and_do_not_leak(chat: Chat) -> None:
    for stop in ("ital of Fr", ["nothing", "ital of Fr"]):
        chunks = await chat.chunks(stop=stop)
        assert text_of(chunks) == "The cap"
        assert chunks[-2]["choices"][0]["finish_reason"] == "stop"


async def test_the_same_seed_says_the_same(chat: Chat) -> None:
    first, again, other = [
        (await chat.whole(temperature=1.5, seed=seed))["choices"][0]["message"]["content"] for seed in (5, 5, 6)
    ]
    assert first == again != other


async def test_several_choices_are_several_answers_each_counted(chat: Chat) -> None:
    answer = await chat.whole(n=3, temperature=1.5, seed=5, max_tokens=6)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in answer["choices"]}) > 1
    assert answer["usage"]["completion_tokens"] == 18


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_are_the_engines_own(chat: Chat, stream: bool) -> None:
    if stream:
        chunks = await chat.chunks(logprobs=True, top_logprobs=2, max_tokens=3)
        told = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
        tokens = [token for each in told for token in each["content"]]
    else:
        answer = await chat.whole(logprobs=True, top_logprobs=2, max_tokens=3)
        tokens = answer["choices"][0]["logprobs"]["content"]
    assert [token["token"] for token in tokens] == ["The", " capital", " of"]
    for token in tokens:
        assert token["top_logprobs"][0]["token"] == token["token"]  # greedy
        assert len(token["top_logprobs"]) == 2
        assert token["logprob"] == pytest.approx(token["top_logprobs"][0]["logprob"])
        assert token["logprob"] <= 0


async def test_a_schema_holds_the_answer_streamed_or_not(chat: Chat) -> None:
    whole = await chat.whole(response_format=ANSWER, max_tokens=60)
    answer = json.loads(whole["choices"][0]["message"]["content"])
    assert set(answer) == {"city", "sea"}
    assert isinstance(answer["sea"], bool)
    assert len(answer["city"]) <= 12
    assert json.loads(text_of(await chat.chunks(response_format=ANSWER, max_tokens=60))) == answer


async def test_any_object_is_an_object(chat: Chat) -> None:
    form = {"type": "json_object"}
    question = [{"role": "user", "content": "Paris as a JSON object with one key, `city`."}]
    answer = await chat.whole(response_format=form, messages=question, max_tokens=200)
    text = answer["choices"][0]["message"]["content"]
    assert text.lstrip().startswith("{")
    if answer["choices"][0]["finish_reason"] == "stop":
        assert isinstance(json.loads(text), dict)


async def test_a_function_that_must_be_called_is_called_with_arguments_of_its_schema(chat: Chat) -> None:
    """llama.cpp drops tools that the model's template has no place for, so that the router builds the call."""
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        answer = await chat.whole(tools=[WEATHER], tool_choice=choice, max_tokens=60)
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == "weather"
        assert set(json.loads(call["function"]["arguments"])) == {"city"}


async def test_characters_of_several_tokens_come_whole(chat: Chat) -> None:
    text = "日本語 🦊 naïve"
    schema = {"type": "string", "enum": [text]}
    form = {"type": "json_schema", "json_schema": {"name": "text", "schema": schema}}
    pieces = await chat.chunks(response_format=form, max_tokens=60)
    assert json.loads(text_of(pieces)) == text
    deltas = [choice["delta"].get("content") or "" for chunk in pieces for choice in chunk["choices"]]
    assert not any("\ufffd" in delta for delta in deltas)


async def test_a_bias_takes_effect(chat: Chat) -> None:
    first = (await chat.whole(logprobs=True, max_tokens=1))["choices"][0]["message"]["content"]
    assert first == "The"
    banned = await chat.whole(logit_bias={"504": -100}, max_tokens=1)  # the token `The`
    assert banned["choices"][0]["message"]["content"] != first


async def test_penalties_reach_over_the_whole_text(chat: Chat) -> None:
    repeat = [{"role": "user", "content": "Say the word yes again and again: yes yes yes yes"}]
    penalised = await chat.whole(messages=repeat, frequency_penalty=2, presence_penalty=2, max_tokens=40)
    plain = await chat.whole(messages=repeat, max_tokens=40)
    assert penalised["choices"][0]["message"]["content"] != plain["choices"][0]["message"]["content"]


async def test_a_prompt_that_is_too_long_is_the_callers_fault(chat: Chat) -> None:
    answer = await chat.post(messages=[{"role": "user", "content": "word " * 2000}])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")


async def test_what_the_model_lacks_is_refused_by_name(chat: Chat) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    answer = await chat.post(messages=[{"role": "user", "content": [picture]}])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("messages")


async def test_raw_prompts_are_continued(chat: Chat) -> None:
    answer = await chat.completion("The capital of France is")
    assert answer["choices"][0]["text"].startswith(" Paris")
    assert answer["usage"]["prompt_tokens"] == 5


async def test_token_ids_say_the_same_as_their_text(chat: Chat) -> None:
    text = "The capital of France is"
    ids = Tokenizer.from_file(str(TOKENIZER)).encode(text, add_special_tokens=False).ids
    by_text, by_ids = [await chat.completion(prompt, logprobs=2) for prompt in (text, ids)]
    assert by_ids["choices"] == by_text["choices"]
    assert by_ids["usage"] == by_text["usage"]
    assert "".join(by_ids["choices"][0]["logprobs"]["tokens"]) == by_ids["choices"][0]["text"]
