"""An upstream that speaks OpenAI's API: how its answers are read, whatever it adds, leaves out or breaks off."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from zooserve.errors import (
    BackendFailed,
    BackendUnavailable,
    BadInput,
    DeadlineExceeded,
    InputTooLong,
    Overloaded,
    ServingError,
    Unsupported,
)
from zooserve_router.backends.openai import OpenAIUpstream
from zooserve_router.backends.upstream import Upstream
from zooserve_router.chat.generation import (
    Conversation,
    Generation,
    Piece,
    Sampling,
    Timings,
    TokenLogprob,
    ToolCallPart,
    Usage,
    Work,
)

HELLO = Conversation([{"role": "user", "content": "Hello"}], Sampling(5))


def chunk(delta: dict[str, Any], finish_reason: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish_reason, **more}]}


def usage(**more: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, **more}}


END = chunk({}, "stop")


async def test_an_answer_comes_in_pieces_and_its_usage_last(fake: Any, answers: Any, sse: Any) -> None:
    counted = usage(prompt_tokens_details={"cached_tokens": 4}, completion_tokens_details={"reasoning_tokens": 1})
    fake.streams(
        sse(chunk({"role": "assistant", "content": ""})),
        sse(chunk({"content": "Hel"})) + sse(chunk({"content": "lo"})),
        sse(END),
        sse(counted),
        sse("[DONE]"),
    )
    assert await answers(HELLO) == [
        Piece("Hel"),
        Piece("lo"),
        Piece(finish_reason="stop"),
        Piece(usage=Usage(9, 2, cached_tokens=4, reasoning_tokens=1)),
    ]


async def test_the_request_goes_to_the_chat_path_with_the_key_and_the_allowed_headers(
    fake: Any, answers: Any, sse: Any, key: str
) -> None:
    fake.streams(sse(END), sse("[DONE]"))
    traced = {"traceparent": "00-1-2-01", "x-tenant": "t1", "authorization": "Bearer the-callers"}
    await answers(Conversation(HELLO.messages, Sampling(5), headers=traced))
    (request,) = fake.asked
    assert str(request.url) == "http://upstream/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {key}"
    assert (request.headers["traceparent"], request.headers["x-tenant"]) == ("00-1-2-01", "t1")
    assert request.headers["accept-encoding"] == "identity"  # a packed stream is a gathered one


async def test_a_raw_prompt_goes_to_the_completions_path(fake: Any, answers: Any, sse: Any) -> None:
    older = {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5, "b": -1.5}]}
    fake.streams(
        sse({"choices": [{"index": 0, "text": "a", "logprobs": older, "finish_reason": None}]}),
        sse({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}),
        sse("[DONE]"),
    )
    assert await answers(Generation("Once", Sampling(1, logprobs=1))) == [
        Piece("a", logprobs=(TokenLogprob("a", -0.5, (("a", -0.5),)),)),
        Piece(finish_reason="length"),
    ]
    assert fake.asked[0].url.path == "/v1/completions"


async def test_several_choices_keep_apart(fake: Any, answers: Any, sse: Any) -> None:
    fake.streams(
        sse(chunk({"content": "b"}, index=1)),
        sse(chunk({"content": "a"})),
        sse(chunk({}, "length", index=1)),
        sse(END),
        sse("[DONE]"),
    )
    assert await answers(Conversation(HELLO.messages, n=2)) == [
        Piece("b", choice=1),
        Piece("a"),
        Piece(finish_reason="length", choice=1),
        Piece(finish_reason="stop"),
    ]


async def test_calls_come_in_parts_and_are_named_once(fake: Any, answers: Any, sse: Any) -> None:
    def call(**part: Any) -> bytes:
        return sse(chunk({"tool_calls": [part]}))

    fake.streams(
        call(index=0, id="c0", type="function", function={"name": "weather", "arguments": ""}),
        call(index=0, id="c0", function={"name": "weather", "arguments": '{"city":'}),
        call(index=0, function={"arguments": ' "Paris"}'}),
        call(id="c1", index=1, function={"name": "noon", "arguments": {}}),
        sse(chunk({}, "tool_calls")),
        sse("[DONE]"),
    )
    pieces = await answers(HELLO)
    assert [piece.tool_calls for piece in pieces[:-1]] == [
        (ToolCallPart(0, "", "c0", "weather"),),
        (ToolCallPart(0, '{"city":'),),
        (ToolCallPart(0, ' "Paris"}'),),
        (ToolCallPart(1, "{}", "c1", "noon"),),
    ]
    assert pieces[-1].finish_reason == "tool_calls"


async def test_thoughts_and_refusals_are_kept_apart_from_the_text(fake: Any, answers: Any, sse: Any) -> None:
    fake.streams(
        sse(chunk({"reasoning_content": "hm"})),
        sse(chunk({"reasoning": "m"})),
        sse(chunk({"refusal": "No."})),
        sse(chunk({"content": [{"type": "text", "text": "part"}]})),
        sse(END),
        sse("[DONE]"),
    )
    pieces = await answers(HELLO)
    assert pieces[:-1] == [Piece(reasoning="hm"), Piece(reasoning="m"), Piece(refusal="No."), Piece("part")]


async def test_no_more_alternatives_are_told_than_were_asked_for(fake: Any, answers: Any, sse: Any) -> None:
    top = [{"token": token, "logprob": -1.0} for token in "abc"]
    logprobs = {"content": [{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": top}]}
    for asked, told in ((2, (("a", -1.0), ("b", -1.0))), (0, ())):
        fake.streams(sse(chunk({"content": "a"}, "stop", logprobs=logprobs)), sse("[DONE]"))
        (piece,) = await answers(Conversation(HELLO.messages, Sampling(5, logprobs=asked)))
        assert piece.logprobs == (TokenLogprob("a", -1.0, told),)


async def test_usage_beside_the_last_text_is_taken_and_none_at_all_is_fine(fake: Any, answers: Any, sse: Any) -> None:
    fake.streams(sse({**chunk({"content": "a"}, "stop"), "usage": usage()["usage"]}), sse("[DONE]"))
    assert (await answers(HELLO))[-1] == Piece(usage=Usage(9, 2))
    fake.streams(sse({**chunk({"content": "a"}, "stop"), "usage": None}), sse("[DONE]"))
    assert await answers(HELLO) == [Piece("a", "stop")]


async def test_llama_cpps_timings_are_told(fake: Any, answers: Any, sse: Any) -> None:
    timed = {**usage(), "timings": {"prompt_ms": 250.0, "predicted_ms": 500.0}}
    fake.streams(sse(chunk({"content": "a"}, "stop")), sse(timed), sse("[DONE]"))
    last = (await answers(HELLO))[-1]
    assert last == Piece(usage=Usage(9, 2), timings=Timings(0.0, 0.25, 0.5))


async def test_that_a_prompt_is_being_read_is_a_sign_of_life(fake: Any, answers: Any, sse: Any) -> None:
    reading = {**chunk({"role": "assistant", "content": None}), "prompt_progress": {"total": 900, "processed": 256}}
    fake.streams(sse(reading), sse(chunk({"content": "a"}, "stop")), sse("[DONE]"))
    assert await answers(HELLO) == [Piece(), Piece("a", "stop")]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("eos", "stop"), ("max_tokens", "length"), ("function_call", "tool_calls"), ("content_filter", "content_filter")],
)
async def test_other_finish_reasons_become_openais(fake: Any, answers: Any, sse: Any, theirs: str, ours: str) -> None:
    fake.streams(sse(chunk({"content": "a"}, theirs)), sse("[DONE]"))
    assert await answers(HELLO) == [Piece("a", ours)]


async def test_an_unknown_finish_reason_is_logged_and_ends_the_answer(
    fake: Any, answers: Any, sse: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fake.streams(sse(chunk({"content": "a"}, "tired")), sse("[DONE]"))
    assert await answers(HELLO) == [Piece("a", "stop")]
    assert "'tired'" in caplog.text


async def test_an_answer_that_the_server_gave_up_is_a_failure(fake: Any, answers: Any, sse: Any) -> None:
    fake.streams(sse(chunk({"content": "a"}, "abort")), sse("[DONE]"))
    with pytest.raises(BackendFailed, match="gave the answer up: abort"):
        await answers(HELLO)


@pytest.mark.parametrize("count", ["-1", "1" + 30 * "0", "1e30", '"many"', "[1]"])
async def test_a_count_of_tokens_that_is_none_is_a_failure(fake: Any, answers: Any, sse: Any, count: str) -> None:
    last = sse({**chunk({"content": "a"}, "stop"), "usage": {"prompt_tokens": 9, "completion_tokens": "COUNT"}})
    fake.streams(last.replace(b'"COUNT"', count.encode()), sse("[DONE]"))
    with pytest.raises(BackendFailed, match="cannot be read"):
        await answers(HELLO)


@pytest.mark.parametrize("end", [[b"data: [DONE]\n\n"], []])
async def test_an_answer_without_a_finish_reason_is_a_failure(
    fake: Any, answers: Any, sse: Any, end: list[bytes]
) -> None:
    fake.streams(sse(chunk({"content": "a"})), *end)
    with pytest.raises(BackendFailed, match="without saying why"):
        await answers(HELLO)


async def test_each_event_is_passed_on_before_the_next_is_written(fake: Any, client: Any, sse: Any) -> None:
    more = asyncio.Event()
    fake.streams(sse(chunk({"content": "a"})), more, sse(chunk({"content": "b"}, "stop")), sse("[DONE]"))
    pieces = client().generate(HELLO, 5)
    assert await anext(pieces) == Piece("a")
    more.set()
    assert [piece async for piece in pieces] == [Piece("b", "stop")]


async def test_leaving_the_answer_closes_the_connection_at_once(fake: Any, client: Any, sse: Any) -> None:
    script = fake.streams(sse(chunk({"content": "a"})), asyncio.Event())
    pieces = client().generate(HELLO, 5)
    await anext(pieces)
    await pieces.aclose()
    assert script.closed.is_set()


async def test_a_cancelled_reader_closes_the_connection_too(fake: Any, client: Any, sse: Any) -> None:
    read = asyncio.Event()
    script = fake.streams(sse(chunk({"content": "a"})), asyncio.Event())

    async def reading() -> None:
        async for _ in client().generate(HELLO, 5):
            read.set()

    task = asyncio.create_task(reading())
    await read.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert script.closed.is_set()


async def test_the_deadline_holds_for_the_whole_answer_and_closes_the_connection(
    fake: Any, answers: Any, sse: Any
) -> None:
    script = fake.streams(sse(chunk({"content": "a"})), asyncio.Event())
    with pytest.raises(DeadlineExceeded):
        await answers(HELLO, timeout_s=0.01)
    assert script.closed.is_set()


REFUSALS: list[tuple[int, Any, type[ServingError], str]] = [
    (400, {"error": {"message": "bad", "param": "top_p", "code": "invalid_value"}}, BadInput, "bad"),
    (400, {"error": {"message": "no", "param": "stop", "code": "unsupported_parameter"}}, Unsupported, "no"),
    (400, {"error": {"message": "long", "code": "context_length_exceeded"}}, InputTooLong, "long"),
    (400, {"error": {"message": "long", "type": "exceed_context_size_error", "code": 400}}, InputTooLong, "long"),
    (400, {"object": "error", "message": "maximum context length is 9", "code": 400}, InputTooLong, "maximum"),
    (413, b"<html>too large</html>", InputTooLong, "does not say why"),
    (422, {"detail": [{"loc": ["body", "top_p"], "msg": "too large"}]}, BadInput, "too large"),
    (401, {"error": {"message": "Incorrect API key provided: sk-very"}}, BackendFailed, "refuses the key"),
    (403, b"", BackendFailed, "refuses the key"),
    (402, b"", BackendFailed, "no credit"),
    (404, {"error": {"message": "no such model"}}, BackendFailed, "'their-model'"),
    (302, b"", BackendFailed, "302"),
    (408, b"", DeadlineExceeded, "its own time"),
    (429, {"error": {"code": "insufficient_quota"}}, BackendFailed, "no credit"),
    (500, {"error": {"message": "oops"}}, BackendFailed, "oops"),
    (502, b"<html>nginx</html>", BackendUnavailable, "not available"),
    (503, {"error": {"message": "Loading model"}}, BackendUnavailable, "Loading model"),
]


@pytest.mark.parametrize(("status", "body", "error", "text"), REFUSALS)
async def test_a_refusal_becomes_what_it_is_to_our_caller(
    fake: Any, answers: Any, status: int, body: Any, error: type[ServingError], text: str, key: str
) -> None:
    fake.refuses(status, body, location="http://elsewhere/v1")
    with pytest.raises(ServingError, match=text) as told:
        await answers(HELLO)
    assert type(told.value) is error
    assert len(fake.asked) == 1  # nobody followed it anywhere
    assert key not in told.value.message
    assert "sk-" not in told.value.message
    assert "html" not in told.value.message


async def test_what_the_caller_did_wrong_is_named(fake: Any, answers: Any) -> None:
    fake.refuses(400, {"error": {"message": "bad", "param": "top_p", "code": "decimal_above_max"}})
    with pytest.raises(BadInput) as told:
        await answers(HELLO)
    assert (told.value.param, told.value.code) == ("top_p", "decimal_above_max")


BLAMED: list[tuple[Work, str, str]] = [
    (HELLO, "top_p", "top_p"),
    (HELLO, "messages[3].content", "messages[3].content"),
    (replace(HELLO, first_message=1), "messages[3].content", "messages[2].content"),
    (replace(HELLO, first_message=1), "messages.1.content", "messages[0].content"),
    (replace(HELLO, first_message=1), "messages[0]", "messages"),
    (replace(HELLO, first_message=1), "messages", "messages"),
    (replace(HELLO, first_message=None), "messages[3].content", "messages"),
    (Generation("Once"), "prompt", "prompt"),
]


@pytest.mark.parametrize(("work", "theirs", "ours"), BLAMED)
async def test_a_field_at_fault_is_named_as_the_caller_sent_it(
    fake: Any, answers: Any, work: Work, theirs: str, ours: str
) -> None:
    fake.refuses(400, {"error": {"message": "bad", "param": theirs}})
    with pytest.raises(BadInput) as told:
        await answers(work)
    assert told.value.param == ours


@pytest.mark.parametrize(("work", "param"), [(HELLO, "messages"), (Generation("Once"), "prompt")])
async def test_what_is_too_long_is_named_also_where_an_event_says_so(
    fake: Any, answers: Any, sse: Any, work: Work, param: str
) -> None:
    too_long = {"error": {"message": "context size exceeded", "code": 400}}
    for answer in (lambda: fake.refuses(400, too_long), lambda: fake.streams(sse(too_long))):
        answer()
        with pytest.raises(InputTooLong) as told:
            await answers(work)
        assert told.value.param == param


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 1.0),
        ({"retry_after": "7"}, 7.0),
        ({"retry_after_ms": "250", "retry_after": "1"}, 0.25),
        ({"retry_after": "99999"}, 3600.0),
        ({"retry_after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry_after": "soon"}, 1.0),
    ],
)
async def test_too_many_requests_say_when_to_come_back(
    fake: Any, answers: Any, headers: dict[str, str], seconds: float
) -> None:
    fake.refuses(429, {"error": {"message": "slow down"}}, **headers)
    with pytest.raises(Overloaded) as told:
        await answers(HELLO)
    assert told.value.retry_after_s == seconds


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"error": {"message": "slot lost", "code": 500, "type": "server_error"}}, BackendFailed),
        ({"error": {"message": "later", "type": "rate_limit_error"}}, Overloaded),
        ({"error": {"message": "context size exceeded", "code": 400}}, InputTooLong),
        ({"error": "broken"}, BackendFailed),
    ],
)
async def test_an_error_among_the_events_is_raised_as_what_it_is(
    fake: Any, answers: Any, sse: Any, payload: Any, error: type[ServingError]
) -> None:
    fake.streams(sse(chunk({"content": "a"})), sse(payload), sse("[DONE]"))
    with pytest.raises(error):
        await answers(HELLO)


@pytest.mark.parametrize(
    "nonsense",
    ["no json", "[1]", {"choices": [{"index": "x"}]}, {"choices": ["a"]}, {"choices": [{"delta": {"tool_calls": 5}}]}],
)
async def test_what_is_not_openais_is_a_failure_of_the_backend(
    fake: Any, answers: Any, sse: Any, nonsense: Any
) -> None:
    fake.streams(sse(nonsense))
    with pytest.raises(BackendFailed):
        await answers(HELLO)


async def test_an_answer_that_is_no_stream_is_a_failure(fake: Any, answers: Any) -> None:
    fake.answers = [httpx.Response(200, json={"choices": []})]
    with pytest.raises(BackendFailed, match="does not stream"):
        await answers(HELLO)


@pytest.mark.parametrize("fault", [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow")])
async def test_an_upstream_that_cannot_be_reached_is_unavailable(fake: Any, answers: Any, fault: Exception) -> None:
    fake.answers = [fault]
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        await answers(HELLO)


async def test_a_kept_connection_that_had_ended_is_tried_once_more(fake: Any, answers: Any, sse: Any) -> None:
    gone = httpx.RemoteProtocolError("Server disconnected without sending a response.")
    fake.streams(sse(END), sse("[DONE]"))
    fake.answers = [gone, *fake.answers]
    assert await answers(HELLO) == [Piece(finish_reason="stop")]
    fake.asked.clear()
    fake.answers = [gone]
    with pytest.raises(BackendUnavailable, match="broke its answer off"):
        await answers(HELLO)
    assert len(fake.asked) == 2


async def test_a_new_connection_that_breaks_is_not_tried_again_since_the_request_may_be_why(model: Any) -> None:
    asked: list[bytes] = []

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with (
        await asyncio.start_server(break_off, "127.0.0.1", 0) as server,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        port = server.sockets[0].getsockname()[1]
        upstream = OpenAIUpstream(Upstream(http, model(), f"http://127.0.0.1:{port}/v1"))
        with pytest.raises(BackendUnavailable, match="broke its answer off"):
            await anext(upstream.generate(HELLO, 5))
    assert len(asked) == 1


async def test_a_connection_that_breaks_in_the_middle_is_not_tried_again(fake: Any, client: Any, sse: Any) -> None:
    fake.streams(sse(chunk({"content": "a"})), httpx.ReadError("reset"))
    pieces = client().generate(HELLO, 5)
    assert await anext(pieces) == Piece("a")
    with pytest.raises(BackendUnavailable, match="broke its answer off"):
        await anext(pieces)
    assert len(fake.asked) == 1


@pytest.mark.parametrize("status", [200, 404, 405])
async def test_an_upstream_is_proven_by_its_list_of_models_which_it_may_lack(
    fake: Any, client: Any, status: int, key: str
) -> None:
    fake.refuses(status, {"data": []})
    await client().prove(5)
    assert (fake.asked[0].method, str(fake.asked[0].url)) == ("GET", "http://upstream/v1/models")
    assert fake.asked[0].headers["authorization"] == f"Bearer {key}"


@pytest.mark.parametrize(("status", "text"), [(401, "refuses the key"), (500, "failed"), (503, "not available")])
async def test_an_upstream_that_would_not_answer_is_not_proven(fake: Any, client: Any, status: int, text: str) -> None:
    fake.refuses(status, b"")
    with pytest.raises(BackendUnavailable, match=text):
        await client().prove(5)


async def test_the_key_shows_nowhere(fake: Any, client: Any, caplog: pytest.LogCaptureFixture, key: str) -> None:
    fake.refuses(401, {"error": {"message": f"Incorrect API key provided: {key}"}})
    upstream = client()
    with pytest.raises(BackendFailed):
        await anext(upstream.generate(HELLO, 5))
    assert key not in caplog.text
    assert key not in repr(upstream._upstream)
