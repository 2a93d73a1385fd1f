"""The form of answers, whole and streamed: what comes in which chunk, in which order, told once."""

import json
from typing import Any

import pytest

from zooserve_router.chat.generation import Piece, TokenLogprob, ToolCallPart, Usage

SCHEMA = {"type": "object", "properties": {}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]
FIRST = ToolCallPart(0, "", "call_1", "add")


@pytest.fixture
def choices(events) -> Any:
    """The choices of a stream's chunks, in their order, the opening and [DONE] left off."""

    def read(response) -> list[dict[str, Any]]:
        opening, *chunks, done = events(response)
        assert json.loads(opening)["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
        assert done == "[DONE]"
        return [choice for chunk in chunks for choice in json.loads(chunk)["choices"]]

    return read


def deltas(choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice["delta"] for choice in choices]


async def test_one_piece_of_everything_comes_as_thought_word_call_and_end(many, choices) -> None:
    many.leaf.script = [Piece("Said.", "tool_calls", tool_calls=(FIRST,), reasoning="Thought.", refusal="No.")]
    told = choices(await many.chat(model="remote", tools=TOOLS, stream=True))
    assert deltas(told) == [
        {"reasoning_content": "Thought."},
        {"content": "Said."},
        {"refusal": "No."},
        {
            "tool_calls": [
                {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add", "arguments": ""}}
            ]
        },
        {},
    ]
    assert [choice["finish_reason"] for choice in told] == [None] * 4 + ["tool_calls"]


async def test_a_call_has_its_id_and_name_first_and_its_arguments_in_pieces(many, choices) -> None:
    parts = [FIRST, ToolCallPart(0, '{"a"'), ToolCallPart(0, ":1}"), ToolCallPart(1, "{}", "call_2", "add")]
    many.leaf.script = [*(Piece(tool_calls=(part,)) for part in parts), Piece("", "tool_calls")]
    told = choices(await many.chat(model="remote", tools=TOOLS, stream=True))
    assert [delta["tool_calls"][0] for delta in deltas(told[:-1])] == [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a"'}},
        {"index": 0, "function": {"arguments": ":1}"}},
        {"index": 1, "id": "call_2", "type": "function", "function": {"name": "add", "arguments": "{}"}},
    ]
    many.leaf.asked.clear()
    message = (await many.chat(model="remote", tools=TOOLS)).json()["choices"][0]["message"]
    assert message == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
            {"id": "call_2", "type": "function", "function": {"name": "add", "arguments": "{}"}},
        ],
    }


async def test_a_refusal_is_told_as_one(many) -> None:
    many.leaf.script = [Piece(refusal="I would "), Piece(refusal="rather not."), Piece("", "stop")]
    message = (await many.chat(model="remote")).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": None, "refusal": "I would rather not."}


async def test_thoughts_stand_beside_the_answer(many) -> None:
    many.leaf.script = [Piece(reasoning="Let me "), Piece("4", reasoning="see."), Piece("", "stop")]
    message = (await many.chat(model="remote")).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "4", "refusal": None, "reasoning_content": "Let me see."}


HI = TokenLogprob("Hi", -0.5, (("Hi", -0.5), ("Hé", -1.25)))
HALF = TokenLogprob("\ufffd", -2.0, (("\ufffd", -2.0),), data=b"\xc3")
HI_TOLD = {
    "token": "Hi",
    "logprob": -0.5,
    "bytes": [72, 105],
    "top_logprobs": [
        {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]},
        {"token": "Hé", "logprob": -1.25, "bytes": [72, 195, 169]},
    ],
}
HALF_TOLD = {
    "token": "\ufffd",
    "logprob": -2.0,
    "bytes": [195],
    "top_logprobs": [{"token": "\ufffd", "logprob": -2.0, "bytes": None}],
}


async def test_logprobs_come_with_the_text_of_their_tokens(many, choices) -> None:
    many.leaf.script = [Piece("Hi", logprobs=(HI,)), Piece("", logprobs=(HALF,)), Piece("", "stop")]
    told = choices(await many.chat(model="remote", logprobs=True, top_logprobs=2, stream=True))
    assert deltas(told) == [{"content": "Hi"}, {"content": ""}, {}]
    assert [choice["logprobs"] for choice in told] == [
        {"content": [HI_TOLD], "refusal": None},
        {"content": [HALF_TOLD], "refusal": None},
        None,
    ]
    whole = (await many.chat(model="remote", logprobs=True, top_logprobs=2)).json()
    assert whole["choices"][0]["logprobs"] == {"content": [HI_TOLD, HALF_TOLD], "refusal": None}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_tokens_of_a_stop_string_are_not_told(many, choices, stream) -> None:
    words = [TokenLogprob(word, -1.0) for word in ("one ", "ST", "OP", " two")]
    many.leaf.script = [*(Piece(word.token, logprobs=(word,)) for word in words), Piece("", "stop")]
    response = await many.chat(model="grammar", stop="STOP", logprobs=True, stream=stream)
    told = choices(response) if stream else response.json()["choices"]
    tokens = [token["token"] for choice in told for token in (choice["logprobs"] or {"content": []})["content"]]
    assert tokens == ["one "]


async def test_logprobs_that_nobody_asked_for_are_not_told(many, choices) -> None:
    many.leaf.script = [Piece("Hi", "stop", logprobs=(HI,))]
    assert (await many.chat(model="remote")).json()["choices"][0]["logprobs"] is None
    assert all(choice["logprobs"] is None for choice in choices(await many.chat(model="remote", stream=True)))


async def test_usage_has_the_details_that_the_backend_tells(many, events) -> None:
    many.leaf.script = [Piece("Hi", "stop"), Piece(usage=Usage(10, 5, cached_tokens=8, reasoning_tokens=3))]
    told = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert (await many.chat(model="remote")).json()["usage"] == told
    *chunks, last, done = events(await many.chat(model="remote", stream=True, stream_options={"include_usage": True}))
    assert done == "[DONE]"
    assert all(json.loads(chunk)["usage"] is None for chunk in chunks)
    assert json.loads(last)["choices"] == []
    assert json.loads(last)["usage"] == told


async def test_a_prompt_that_is_asked_twice_is_counted_once_with_its_cached_tokens(many) -> None:
    many.leaf.script = [Piece("Hi", "stop"), Piece(usage=Usage(10, 5, cached_tokens=8, reasoning_tokens=3))]
    assert (await many.chat(model="claude", n=2)).json()["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 10,
        "total_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 6},
    }


@pytest.mark.parametrize("stop", ["STOP", ["never", "STOP"]], ids=["a string", "a list"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "texts", [["one STOP two"], ["one S", "TOP"], ["one ", "STO", "P two"], list("one STOP two")], ids=str
)
async def test_no_part_of_a_stop_string_is_ever_said(edge, pieces, choices, texts, stop, stream) -> None:
    edge.leaf.script = pieces(texts)
    response = await edge.chat(stop=stop, stream=stream)
    if stream:
        told = choices(response)
        said = "".join(delta.get("content", "") for delta in deltas(told))
        reasons = [choice["finish_reason"] for choice in told if choice["finish_reason"]]
    else:
        choice = response.json()["choices"][0]
        said, reasons = choice["message"]["content"], [choice["finish_reason"]]
    assert (said, reasons) == ("one ", ["stop"])
    assert edge.leaf.open == 0


async def test_completions_tell_logprobs_in_their_own_form(many, events) -> None:
    tokens = (TokenLogprob("A", -0.5, (("A", -0.5), ("B", -1.0))), TokenLogprob(" b", -0.25, ((" b", -0.25),)))
    many.leaf.script = [Piece("A", logprobs=tokens[:1]), Piece(" b", "stop", logprobs=tokens[1:])]
    body = {"model": "remote", "prompt": "Hi", "logprobs": 2}
    whole = (await many.http.post("/v1/completions", json=body)).json()
    assert whole["choices"][0]["logprobs"] == {
        "tokens": ["A", " b"],
        "token_logprobs": [-0.5, -0.25],
        "top_logprobs": [{"A": -0.5, "B": -1.0}, {" b": -0.25}],
        "text_offset": [0, 1],
    }
    *chunks, _ = events(await many.http.post("/v1/completions", json={**body, "stream": True}))
    offsets = [json.loads(chunk)["choices"][0]["logprobs"]["text_offset"] for chunk in chunks]
    assert offsets == [[0], [1]]
    assert many.leaf.asked[0].sampling.logprobs == 2


async def test_completions_without_logprobs_have_none(many) -> None:
    many.leaf.script = [Piece("A", "stop", logprobs=(HI,))]
    whole = (await many.http.post("/v1/completions", json={"model": "remote", "prompt": "Hi"})).json()
    assert whole["choices"][0]["logprobs"] is None
