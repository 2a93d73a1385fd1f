"""Answers of the real engine are held to schemas made by chance, and calls to the parameters of their functions."""

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from jsonschema import Draft202012Validator

pytestmark = pytest.mark.e2e

SCHEMAS = int(os.environ.get("ZOOSERVE_TEST_SCHEMAS", "60"))
"""`make schemas` asks for 200, which a slow machine takes ten minutes for."""
FUNCTIONS, SEED = 24, 20261130
MAX_TOKENS = 160
TOPICS = ("a city", "a dog", "the weather in Oslo", "an order of three books", "a user's profile", "a train to Bern")
PATTERNS = ("^[A-Z]{3}-[0-9]{2}$", "^(red|green|blue)[0-9]?$", "^[a-f0-9]{4}(:[a-f0-9]{2})*$", r"^v[0-9]\.[0-9]{1,2}$")
WORDS = ("alpha", "beta", 'quote"d', "back\\slash", "é", "", "line\nbreak", "{", "<tool_call>")


class SchemaMaker:
    """Schemas by chance, each within what the engine enforces and small enough for a few dozen tokens."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def object(self, depth: int = 2) -> dict[str, Any]:
        """An object of one to three properties, which are all required or nearly."""
        names = self._chance.sample(["id", "name", "size", "tags", "kind", 'odd "name"', "größe"], self._between(1, 2))
        needed = [name for name in names if self._chance.random() < 0.8]
        return {
            "type": "object",
            "properties": {name: self.value(depth - 1) for name in names},
            "required": needed,
            "additionalProperties": False,
        }

    def root(self) -> dict[str, Any]:
        """A whole schema; some share a definition between two places, or hold themselves."""
        schema = self.object()
        if self._chance.random() < 0.3:
            schema["$defs"] = {"shared": self.value(0)}
            schema["properties"]["first"] = {"$ref": "#/$defs/shared"}
            schema["properties"]["rest"] = {"type": "array", "items": {"$ref": "#/$defs/shared"}, "maxItems": 2}
        if self._chance.random() < 0.1:
            schema["properties"]["next"] = {"anyOf": [{"type": "null"}, {"$ref": "#"}]}
        return schema

    def value(self, depth: int) -> dict[str, Any]:
        """Any schema, nested at most so deep."""
        kinds = [
            self._text,
            self._word,
            self._integer,
            self._number,
            self._plain,
            self._choice,
            self._tuple,
            self._date,
        ]
        nested = [lambda: self.object(depth), lambda: self._list(depth)] * 2 if depth > 0 else []
        return self._chance.choice([*kinds, *nested])()

    def _between(self, low: int, high: int) -> int:
        return self._chance.randint(low, high)

    def _text(self) -> dict[str, Any]:
        if self._chance.random() < 0.5:
            return {"type": "string", "pattern": self._chance.choice(PATTERNS)}
        low = self._between(0, 4)
        return {"type": "string", "minLength": low, "maxLength": low + self._between(0, 8)}

    def _word(self) -> dict[str, Any]:
        if self._chance.random() < 0.3:
            return {"const": self._chance.choice([*WORDS, 7, None, True, 2.5, ["a", {"b": 1}]])}
        return {"type": "string", "enum": self._chance.sample(WORDS, self._between(1, 4))}

    def _integer(self) -> dict[str, Any]:
        low = self._between(-200, 200)
        high = low + self._between(0, 300)
        bounds = {"minimum": low, "maximum": high, "exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1}
        lower, upper = (
            self._chance.choice(["minimum", "exclusiveMinimum"]),
            self._chance.choice(["maximum", "exclusiveMaximum"]),
        )
        return {"type": "integer", lower: bounds[lower], upper: bounds[upper]}

    def _number(self) -> dict[str, Any]:
        return {"type": "number"}

    def _plain(self) -> dict[str, Any]:
        return {"type": self._chance.choice(["boolean", "null", ["boolean", "null"], ["integer", "null"]])}

    def _choice(self) -> dict[str, Any]:
        return {
            self._chance.choice(["anyOf", "oneOf"]): [
                self._integer(),
                self._chance.choice([{"type": "null"}, self._text()]),
            ]
        }

    def _tuple(self) -> dict[str, Any]:
        items = [self.value(0) for _ in range(self._between(1, 2))]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}

    def _date(self) -> dict[str, Any]:
        return {"type": "string", "format": self._chance.choice(["date", "uuid", "date-time", "time"])}

    def _list(self, depth: int) -> dict[str, Any]:
        low = self._between(0, 2)
        return {"type": "array", "items": self.value(depth - 1), "minItems": low, "maxItems": low + self._between(0, 2)}


@dataclass(frozen=True)
class Said:
    """One answer, streamed or whole."""

    content: str
    calls: list[tuple[str, str]]
    finish_reason: str


@pytest.fixture
async def client(upstream_router) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{upstream_router.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=240) as client:
        yield client


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Says how much a test has seen, whether it passes or not."""

    def say(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{line}\n")

    return say


async def whole(client: openai.AsyncOpenAI, **asked: Any) -> Said:
    choice = (await client.chat.completions.create(**asked)).choices[0]
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
    return Said(choice.message.content or "", calls, choice.finish_reason)


async def streamed(client: openai.AsyncOpenAI, **asked: Any) -> Said:
    content, reason = "", ""
    calls: dict[int, tuple[str, str]] = {}
    async for chunk in await client.chat.completions.create(**asked, stream=True):
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        reason = choice.finish_reason or reason
        for call in choice.delta.tool_calls or ():
            name, arguments = calls.get(call.index, (call.function.name, ""))
            calls[call.index] = (name, arguments + (call.function.arguments or ""))
    return Said(content, list(calls.values()), reason)


async def all_of(client: openai.AsyncOpenAI, wanted: list[dict[str, Any]]) -> list[Said]:
    """Every second one streamed, eight at once."""
    gate = asyncio.Semaphore(8)

    async def one(index: int, asked: dict[str, Any]) -> Said:
        async with gate:
            return await (streamed if index % 2 else whole)(client, **asked)

    return await asyncio.gather(*(one(index, asked) for index, asked in enumerate(wanted)))


def asked_for(index: int, **fields: Any) -> dict[str, Any]:
    content = f"Describe {TOPICS[index % len(TOPICS)]}."
    return {
        "model": "chat_json",
        "messages": [{"role": "user", "content": content}],
        "max_completion_tokens": MAX_TOKENS,
        "seed": index,
        **fields,
    }


@pytest.mark.timeout(300 + 10 * SCHEMAS)
async def test_no_answer_breaks_a_schema(client, tell) -> None:
    maker = SchemaMaker(SEED)
    schemas = [maker.root() for _ in range(SCHEMAS)]
    formats = [{"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}} for schema in schemas]
    answers = await all_of(client, [asked_for(index, response_format=form) for index, form in enumerate(formats)])
    finished = [pair for pair in zip(schemas, answers, strict=True) if pair[1].finish_reason == "stop"]
    tell(f"{len(finished)} of {SCHEMAS} answers finished within {MAX_TOKENS} tokens")
    assert {answer.finish_reason for answer in answers} <= {"stop", "length"}
    for schema, answer in finished:
        Draft202012Validator(schema).validate(json.loads(answer.content))
    assert len(finished) > 0.9 * SCHEMAS


@pytest.mark.timeout(500)
@pytest.mark.parametrize("choice", ["required", "named", "auto"])
async def test_no_call_breaks_its_parameters(client, tell, choice) -> None:
    maker = SchemaMaker(SEED + 1)
    wanted, tools_of = [], []
    for index in range(FUNCTIONS // 3):
        functions = [{"name": f"function_{number}", "parameters": maker.root()} for number in range(2)]
        named = {"type": "function", "function": {"name": "function_1"}}
        tools = [{"type": "function", "function": function} for function in functions]
        wanted.append(asked_for(index, tools=tools, tool_choice=named if choice == "named" else choice))
        tools_of.append({function["name"]: function["parameters"] for function in functions})
    answers = await all_of(client, wanted)
    called = [pair for pair in zip(tools_of, answers, strict=True) if pair[1].finish_reason == "tool_calls"]
    tell(f"{len(called)} of {len(answers)} answers call a function ({choice})")
    for tools, answer in called:
        ((name, arguments),) = answer.calls
        assert answer.content == ""
        assert choice != "named" or name == "function_1"
        Draft202012Validator(tools[name]).validate(json.loads(arguments))
    others = [answer for answer in answers if answer.finish_reason != "tool_calls"]
    if choice == "auto":
        assert all(answer.content and not answer.calls for answer in others if answer.finish_reason == "stop")
    else:
        assert {answer.finish_reason for answer in others} <= {"length"}
        assert len(called) > 0.8 * len(answers)


async def test_each_of_several_choices_is_read_for_itself(client) -> None:
    tool = {
        "name": "roll",
        "parameters": {
            "type": "object",
            "properties": {"dice": {"type": "integer", "minimum": 1, "maximum": 6}},
            "required": ["dice"],
            "additionalProperties": False,
        },
    }
    asked = asked_for(0, tools=[{"type": "function", "function": tool}], tool_choice="required", n=3)
    answer = await client.chat.completions.create(**asked)
    assert [choice.finish_reason for choice in answer.choices] == ["tool_calls"] * 3
    calls = [choice.message.tool_calls[0] for choice in answer.choices]
    assert all(1 <= json.loads(call.function.arguments)["dice"] <= 6 for call in calls)
    assert len({call.id for call in calls}) == 3


async def test_a_call_that_the_tokens_do_not_suffice_for_says_length(client) -> None:
    tool = {
        "name": "write",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "minLength": 400}},
            "required": ["text"],
        },
    }
    asked = asked_for(0, tools=[{"type": "function", "function": tool}], tool_choice="required")
    answer = await streamed(client, **{**asked, "max_completion_tokens": 40})
    assert answer.finish_reason == "length"
    ((name, arguments),) = answer.calls
    assert name == "write"
    assert arguments.lstrip().startswith("{")


async def test_any_json_object_is_one(client) -> None:
    asked = asked_for(0, response_format={"type": "json_object"}, stop=None, temperature=0)
    answer = await whole(client, **asked)
    assert answer.finish_reason in ("stop", "length")
    if answer.finish_reason == "stop":
        assert isinstance(json.loads(answer.content), dict)
    else:
        assert answer.content.lstrip().startswith("{")


async def test_a_tool_loop_comes_to_an_answer(client) -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Oslo"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Is it raining in Oslo?"}]
    asked = {"model": "chat_json", "tools": [tool], "temperature": 0, "max_completion_tokens": MAX_TOKENS}
    first = (
        (await client.chat.completions.create(**asked, messages=messages, tool_choice="required")).choices[0].message
    )
    call = first.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": "It is raining."}
    messages += [first.model_dump(exclude_none=True), result]
    last = (await client.chat.completions.create(**asked, messages=messages, tool_choice="none")).choices[0]
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    assert last.message.tool_calls is None
    assert last.message.content


async def test_a_schema_that_the_engine_would_pass_over_is_refused(client) -> None:
    schema = {"type": "object", "properties": {"share": {"type": "number", "maximum": 1}}, "required": ["share"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(**asked_for(0, response_format=form))
    assert refused.value.param == "response_format"
    assert refused.value.code == "unsupported_json_schema"
    assert "`maximum`" in refused.value.message
