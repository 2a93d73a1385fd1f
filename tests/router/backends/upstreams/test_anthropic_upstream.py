"""Answers in the events of Anthropic's Messages API, as its documentation writes them."""

import asyncio
from typing import Any

import pytest

from zooserve.errors import (
    BackendFailed,
    BackendUnavailable,
    BadInput,
    InputTooLong,
    Overloaded,
    ServingError,
    Unsupported,
)
from zooserve_router.chat.generation import Conversation, Generation, Piece, Sampling, ToolCallPart, Usage

HELLO = Conversation([{"role": "user", "content": "Hello"}], Sampling(5))


class Events:
    """Writes the events of one message."""

    def __init__(self, sse: Any) -> None:
        self._sse = sse

    def __call__(self, kind: str, **fields: Any) -> bytes:
        written: bytes = self._sse({"type": kind, **fields}, kind)
        return written

    def start(self, **usage: int) -> bytes:
        counted = {"input_tokens": 9, "output_tokens": 1, **usage}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude"}
        return self("message_start", message={**message, "stop_reason": None, "usage": counted})

    def text(self, index: int, *texts: str) -> bytes:
        deltas = [{"type": "text_delta", "text": text} for text in texts]
        return self.block(index, {"type": "text", "text": ""}, *deltas)

    def block(self, index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
        written = self("content_block_start", index=index, content_block=block)
        written += b"".join(self("content_block_delta", index=index, delta=delta) for delta in deltas)
        return written + self("content_block_stop", index=index)

    def end(self, reason: str = "end_turn", **usage: Any) -> bytes:
        counted = {"output_tokens": 7, **usage}
        ended = self("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=counted)
        return ended + self("message_stop")


@pytest.fixture
def events(sse: Any) -> Events:
    return Events(sse)


async def test_an_answer_comes_in_pieces_and_its_usage_last(fake: Any, answers: Any, events: Events) -> None:
    cached = {"cache_read_input_tokens": 30, "cache_creation_input_tokens": 2}
    fake.streams(events.start(**cached), events("ping"), events.text(0, "Hel", "lo"), events.end())
    assert await answers(HELLO, kind="anthropic") == [
        Piece("Hel"),
        Piece("lo"),
        Piece(finish_reason="stop"),
        Piece(usage=Usage(9 + 30 + 2, 7, cached_tokens=30)),
    ]


@pytest.mark.parametrize("count", [-1, 2**63, "many", None])
async def test_a_count_of_tokens_that_is_none_is_left_out(fake: Any, answers: Any, events: Events, count: Any) -> None:
    fake.streams(events.start(cache_read_input_tokens=count), events.text(0, "Hel"), events.end())
    assert (await answers(HELLO, kind="anthropic"))[-1] == Piece(usage=Usage(9, 7))


async def test_the_request_goes_to_the_messages_path_with_the_key(
    fake: Any, answers: Any, events: Events, key: str
) -> None:
    fake.streams(events.start(), events.end())
    await answers(HELLO, kind="anthropic")
    assert str(fake.asked[0].url) == "http://upstream/v1/messages"
    assert fake.asked[0].headers["x-api-key"] == key
    assert "authorization" not in fake.asked[0].headers


async def test_calls_are_numbered_among_themselves_and_come_in_parts(fake: Any, answers: Any, events: Events) -> None:
    def arguments(text: str) -> dict[str, str]:
        return {"type": "input_json_delta", "partial_json": text}

    weather = {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}
    noon = {"type": "tool_use", "id": "t2", "name": "noon", "input": {}}
    fake.streams(
        events.start(),
        events.text(0, "Let me see."),
        events.block(1, weather, arguments(""), arguments('{"city":'), arguments('"Paris"}')),
        events.block(2, noon),
        events.end("tool_use"),
    )
    pieces = await answers(HELLO, kind="anthropic")
    assert [part for piece in pieces for part in piece.tool_calls] == [
        ToolCallPart(0, "", "t1", "weather"),
        ToolCallPart(0, '{"city":'),
        ToolCallPart(0, '"Paris"}'),
        ToolCallPart(1, "", "t2", "noon"),
        ToolCallPart(1, "{}"),  # no arguments are an empty object, which is what OpenAI's clients parse
    ]
    assert pieces[-2].finish_reason == "tool_calls"


async def test_arguments_that_come_whole_are_told_once(fake: Any, answers: Any, events: Events) -> None:
    whole = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Paris"}}
    fake.streams(events.start(), events.block(0, whole), events.end("tool_use"))
    pieces = await answers(HELLO, kind="anthropic")
    assert [part for piece in pieces for part in piece.tool_calls] == [
        ToolCallPart(0, '{"city": "Paris"}', "t1", "weather")
    ]


async def test_thoughts_are_kept_apart_and_signatures_are_not_told(fake: Any, answers: Any, events: Events) -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    thought = {"type": "thinking_delta", "thinking": "hm"}
    signed = {"type": "signature_delta", "signature": "Eq"}
    counted: Any = {"output_tokens_details": {"thinking_tokens": 3}}
    fake.streams(
        events.start(), events.block(0, thinking, thought, signed), events.text(1, "Hi"), events.end(**counted)
    )
    pieces = await answers(HELLO, kind="anthropic")
    assert pieces == [
        Piece(reasoning="hm"),
        Piece("Hi"),
        Piece(finish_reason="stop"),
        Piece(usage=Usage(9, 7, reasoning_tokens=3)),
    ]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "stop"),
        ("refusal", "content_filter"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("something_new", "stop"),
    ],
)
async def test_stop_reasons_become_openais(fake: Any, answers: Any, events: Events, theirs: str, ours: str) -> None:
    fake.streams(events.start(), events.end(theirs))
    assert (await answers(HELLO, kind="anthropic"))[0].finish_reason == ours


async def test_events_and_blocks_of_new_kinds_say_nothing(fake: Any, answers: Any, events: Events) -> None:
    block = events.block(0, {"type": "server_tool_use", "id": "s1"}, {"type": "new_delta"})
    fake.streams(events.start(), events("news", about="x"), block, events.text(1, "Hi"), events.end())
    assert (await answers(HELLO, kind="anthropic"))[0] == Piece("Hi")


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", Overloaded),
        ("rate_limit_error", Overloaded),
        ("api_error", BackendFailed),
        ("invalid_request_error", BadInput),
        ("authentication_error", BackendFailed),
    ],
)
async def test_an_error_among_the_events_is_raised_as_what_it_is(
    fake: Any, answers: Any, events: Events, kind: str, error: type[ServingError]
) -> None:
    fake.streams(events.start(), events("error", error={"type": kind, "message": "told"}))
    with pytest.raises(ServingError) as told:
        await answers(HELLO, kind="anthropic")
    assert type(told.value) is error


@pytest.mark.parametrize(
    ("status", "kind", "message", "error"),
    [
        (400, "invalid_request_error", "temperature: range: 0..1", BadInput),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", InputTooLong),
        (413, "request_too_large", "Request exceeds the maximum size", InputTooLong),
        (404, "not_found_error", "model: claude-nowhere", BackendFailed),
        (529, "overloaded_error", "Overloaded", Overloaded),
        (503, "api_error", "away", BackendUnavailable),
    ],
)
async def test_a_refusal_becomes_what_it_is_to_our_caller(
    fake: Any, answers: Any, status: int, kind: str, message: str, error: type[ServingError]
) -> None:
    fake.refuses(status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
    with pytest.raises(ServingError) as told:
        await answers(HELLO, kind="anthropic")
    assert type(told.value) is error


async def test_an_answer_that_breaks_off_is_a_failure(fake: Any, answers: Any, events: Events) -> None:
    fake.streams(events.start(), events.text(0, "Hel"))
    with pytest.raises(BackendFailed, match="without saying why"):
        await answers(HELLO, kind="anthropic")


async def test_what_cannot_be_read_is_a_failure_of_the_backend(fake: Any, answers: Any, events: Events) -> None:
    fake.streams(events.start(), events("content_block_delta", index=0))
    with pytest.raises(BackendFailed, match="cannot be read"):
        await answers(HELLO, kind="anthropic")


async def test_leaving_the_answer_closes_the_connection_at_once(fake: Any, client: Any, events: Events) -> None:
    script = fake.streams(events.start(), events.text(0, "a"), asyncio.Event())
    pieces = client(kind="anthropic").generate(HELLO, 5)
    assert await anext(pieces) == Piece("a")
    await pieces.aclose()
    assert script.closed.is_set()


async def test_raw_prompts_are_refused(answers: Any) -> None:
    with pytest.raises(Unsupported, match="no raw prompts"):
        await answers(Generation("Once"), kind="anthropic")
