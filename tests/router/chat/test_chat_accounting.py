"""What a chat takes and what becomes of it: room that is waited for, tokens for nobody, counts that add up, spans."""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import httpx
import pytest
from opentelemetry.trace import format_span_id, format_trace_id
from prometheus_client.parser import text_string_to_metric_families

from zooserve.errors import BackendFailed, BackendUnavailable
from zooserve_observability import tracing
from zooserve_router import readiness
from zooserve_router.admission import Budget
from zooserve_router.chat.generation import EngineReport, Piece, Timings, ToolCallPart, Usage
from zooserve_router.chat.held import Held
from zooserve_router.fair_queue import FairQueue

LABELS = {"model": "chat", "version": "1", "class": "interactive"}
TIMINGS = Timings(queue_s=0.25, prefill_s=0.5, decode_s=1.0)
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def told(edge: Any, sample: str, **labels: str) -> float:
    """The value of one series; 0 where there is none."""
    for family in text_string_to_metric_families(edge.metrics.exposition().decode()):
        for each in family.samples:
            if each.name == sample and each.labels == {**LABELS, **labels}:
                return float(each.value)
    return 0.0


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until it holds; the test's own timeout bounds it."""
    while not holds():  # noqa: ASYNC110 - what it looks at has no event
        await asyncio.sleep(0)


async def streamed(edge: Any, **fields: Any) -> httpx.Response:
    return await edge.chat(stream=True, **fields)


def connection(edge: Any, **fields: Any) -> tuple[Coroutine[Any, Any, None], asyncio.Event]:
    """A chat over a connection that is cut once the event is set."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], **fields}
    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None: ...

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
    return edge.app(scope, receive, send), gone


def assert_counts_add_up(edge: Any, finished: int, cancelled: int, failed: int) -> None:
    ended = [told(edge, "zooserve_chat_choices_ended_total", outcome=o) for o in ("finished", "cancelled", "failed")]
    assert ended == [finished, cancelled, failed]
    assert told(edge, "zooserve_chat_choices_issued_total") == sum(ended)


# Room


async def test_a_chat_waits_for_room_and_is_answered_once_there_is_some(edge) -> None:
    edge.budget.take(950)
    asking = asyncio.create_task(edge.chat())
    await until(lambda: edge.queue.waiting == 1)
    assert edge.leaf.asked == []
    assert b'zooserve_chat_waiting{model="chat"} 1.0' in edge.metrics.exposition()
    edge.queue.give_back(950)
    response = await asking
    assert response.status_code == 200
    assert "admission;dur=" in response.headers["server-timing"]
    assert b'zooserve_chat_waiting{model="chat"} 0.0' in edge.metrics.exposition()
    assert b'zooserve_chat_held_tokens{model="chat"} 0.0' in edge.metrics.exposition()


async def test_beyond_the_queue_it_is_429_with_the_time_to_come_back(edge) -> None:
    edge.budget.take(1000)
    asking = [asyncio.create_task(edge.chat()) for _ in range(edge.queue.most_waiting)]
    await until(lambda: edge.queue.waiting == edge.queue.most_waiting)
    response = await edge.chat()
    assert response.status_code == 429
    assert response.json()["error"]["code"] == "overloaded"
    assert int(response.headers["retry-after"]) >= 1
    assert int(response.headers["retry-after-ms"]) >= 1
    assert edge.leaf.asked == []
    assert told(edge, "zooserve_tokens_total", direction="input") == 0, "what is refused was not read"
    edge.queue.give_back(1000)
    assert {response.status_code for response in await asyncio.gather(*asking)} == {200}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_deadline_that_passes_while_waiting_is_504_and_says_that_nothing_was_started(edge, stream) -> None:
    edge.budget.take(1000)
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    response = await edge.http.post("/v1/chat/completions", json=body, headers={"x-request-timeout-ms": "20"})
    assert response.status_code == 504
    assert "waited behind others and was never started" in response.json()["error"]["message"]
    assert (edge.leaf.asked, edge.queue.waiting) == ([], 0)
    assert_counts_add_up(edge, 0, 0, 0)


async def test_who_hangs_up_while_waiting_leaves_and_the_next_is_answered(edge) -> None:
    edge.budget.take(1000)
    serving, gone = connection(edge)
    leaving = asyncio.create_task(serving)
    await until(lambda: edge.queue.waiting == 1)
    asking = asyncio.create_task(edge.chat())
    await until(lambda: edge.queue.waiting == 2)
    gone.set()
    await leaving
    assert edge.queue.waiting == 1
    edge.queue.give_back(1000)
    assert (await asking).status_code == 200
    assert_counts_add_up(edge, 1, 0, 0)


async def test_callers_take_turns_by_the_key_they_send(edge) -> None:
    edge.queue.most_waiting = 10
    edge.budget.take(1000)

    def asking(content: str, key: str) -> asyncio.Task[httpx.Response]:
        body = {"model": "chat", "messages": [{"role": "user", "content": content}], "max_tokens": 100}
        headers = {"authorization": f"Bearer {key}"}
        return asyncio.create_task(edge.http.post("/v1/chat/completions", json=body, headers=headers))

    tasks = [asking(f"greedy {number}", "greedy") for number in range(6)]
    await until(lambda: edge.queue.waiting == 6)
    tasks.append(asking("modest", "modest"))
    await until(lambda: edge.queue.waiting == 7)
    edge.queue.give_back(1000)
    await asyncio.gather(*tasks)
    order = ["modest" if "modest" in work.prompt else "greedy" for work in edge.leaf.asked]
    assert order.index("modest") == 1


async def test_a_choice_that_ends_early_gives_back_its_whole_grant_while_its_sibling_still_writes(edge) -> None:
    hold, said = asyncio.Event(), edge.leaf.generate

    async def generate(work, timeout_s):
        async for piece in said(work, timeout_s):
            if work.sampling.seed == 6:
                await hold.wait()
            yield piece

    edge.leaf.generate = generate
    asking = asyncio.create_task(edge.chat(n=2, seed=5))
    await until(lambda: edge.budget.taken_tokens > 0)
    both = edge.budget.taken_tokens
    await until(lambda: edge.budget.taken_tokens < both)
    assert (edge.budget.taken_tokens, edge.budget.taken_requests) == (both // 2, 1)
    hold.set()
    await asking
    assert edge.budget.taken_tokens == 0


async def test_an_ended_answer_holds_nothing_though_its_client_is_slow_to_read(edge) -> None:
    edge.leaf.script = [Piece("Hello", "stop")]
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    reading = asyncio.Event()

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else await asyncio.Future()

    async def send(message: dict[str, Any]) -> None:
        if b"Hello" in message.get("body", b""):
            assert edge.budget.taken_tokens == 0
            reading.set()

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
    await edge.app(scope, receive, send)
    assert reading.is_set()


async def test_what_a_backend_counts_beyond_the_estimate_is_held_too(edge) -> None:
    queue: FairQueue = edge.queue
    await queue.admit(100, 2, "somebody")
    held = Held(queue, [50, 50], settles_s=0)
    held.counted(0, 30)
    assert edge.budget.taken_tokens == 100
    held.counted(0, 70)
    assert edge.budget.taken_tokens == 120
    held.ended(0)
    held.ended(0)
    held.counted(0, 500)
    assert (edge.budget.taken_tokens, edge.budget.taken_requests) == (50, 1)
    held.left_all()
    await until(lambda: edge.budget.taken_tokens == 0)
    assert edge.budget.taken_requests == 0


async def test_one_request_asks_for_no_more_choices_at_a_time_than_its_backend_takes(edge) -> None:
    edge.queue.budget = Budget("chat", None, limit_requests=2)
    open_at: list[int] = []
    said = edge.leaf.generate

    async def generate(work, timeout_s):
        async for piece in said(work, timeout_s):
            open_at.append(edge.leaf.open)
            await asyncio.sleep(0)
            yield piece

    edge.leaf.generate = generate
    choices = (await edge.chat(n=5)).json()["choices"]
    assert [choice["message"]["content"] for choice in choices] == ["Hello"] * 5
    assert max(open_at) == 2
    assert edge.queue.budget.taken_requests == 0


async def test_a_message_that_is_cut_off_here_holds_its_room_until_its_backend_has_surely_stopped(many) -> None:
    many.service._cancel_settles_s = 60
    tools = [{"type": "function", "function": {"name": "f"}}]
    many.leaf.script = [Piece('{"message": "one"}', "stop")]
    await many.chat(model="grammar", tools=tools, stop=", t")
    assert many.budget.taken_tokens == 0
    many.leaf.script = [Piece('{"message": "one, two'), Piece(", three"), Piece("", "stop")]
    await many.chat(model="grammar", tools=tools, stop=", t")
    assert many.leaf.open == 0
    assert many.budget.taken_tokens > 0


# Ends


async def test_whatever_becomes_of_chats_their_choices_add_up(edge, pieces) -> None:
    await edge.chat(n=3)
    edge.leaf.script = [Piece("Hel"), BackendFailed("broken")]
    await streamed(edge)
    await edge.chat()
    edge.leaf.script = pieces(["Hello"])
    edge.leaf.hold = asyncio.Event()
    edge.leaf.said.clear()
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "n": 2}
    await edge.http.post("/v1/chat/completions", json=body, headers={"x-request-timeout-ms": "30"})
    edge.leaf.said.clear()
    serving, gone = connection(edge, stream=True)
    leaving = asyncio.create_task(serving)
    await edge.leaf.said.wait()
    gone.set()
    await leaving
    assert_counts_add_up(edge, finished=3, cancelled=3, failed=2)
    assert edge.leaf.open == 0
    assert [told(edge, "zooserve_wasted_tokens_total", reason=r) for r in ("error", "deadline", "hang_up")] == [
        6,
        10,
        5,
    ]


async def test_the_tokens_of_a_stream_that_was_left_are_kept(edge) -> None:
    edge.leaf.hold = asyncio.Event()
    serving, gone = connection(edge, stream=True)
    leaving = asyncio.create_task(serving)
    await edge.leaf.said.wait()
    gone.set()
    await leaving
    assert told(edge, "zooserve_tokens_total", direction="output") == 5
    assert told(edge, "zooserve_tokens_total", direction="input") > 0
    assert told(edge, "zooserve_requests_total", outcome="cancelled") == 1
    assert told(edge, "zooserve_time_to_first_token_seconds_count") == 1


async def test_what_a_leaf_writes_past_a_stop_string_is_wasted_by_stop(edge, pieces) -> None:
    edge.leaf.script = pieces(["one ST", "OP and more"])
    body = (await edge.chat(stop=["STOP"])).json()
    assert body["choices"][0]["message"]["content"] == "one "
    assert body["usage"]["completion_tokens"] == 4
    assert told(edge, "zooserve_wasted_tokens_total", reason="stop") == len(" and more")
    assert_counts_add_up(edge, 1, 0, 0)


async def test_a_stopping_router_tells_every_stream_and_every_waiter(edge, events) -> None:
    edge.leaf.hold = asyncio.Event()
    writing = asyncio.create_task(streamed(edge))
    await edge.leaf.said.wait()
    edge.budget.take_anyway(1000)
    waiting = asyncio.create_task(edge.chat())
    await until(lambda: edge.queue.waiting == 1)
    edge.service.stop()
    *_, error, done = events(await writing)
    assert json.loads(error)["error"]["code"] == "router_stopping"
    assert done == "[DONE]"
    assert edge.leaf.open == 0
    for response in (await waiting, await edge.chat()):
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "router_stopping"
    assert told(edge, "zooserve_wasted_tokens_total", reason="shutdown") == 5
    assert_counts_add_up(edge, 0, 1, 0)
    model = edge.app.state.services.catalogue.resolve("chat")
    assert edge.service.ready_model(model), "that the router stops is no doubt of the model"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_goes_wrong_after_every_choice_has_ended_is_no_failure(edge, events, stream) -> None:
    edge.leaf.script = [Piece("Hello", "stop"), BackendUnavailable("the connection broke")]
    response = await edge.chat(stream=stream)
    assert response.status_code == 200
    if stream:
        assert "error" not in json.loads(events(response)[-2])
    assert (await edge.chat()).status_code == 200, "nor a doubt"
    assert_counts_add_up(edge, 2, 0, 0)


async def test_no_choice_is_lost_by_what_goes_wrong_after_the_end_of_another(edge) -> None:
    edge.leaf.script = [Piece("Hello", "stop"), BackendUnavailable("the connection broke")]
    choices = (await edge.chat(n=3)).json()["choices"]
    assert [(choice["message"]["content"], choice["finish_reason"]) for choice in choices] == [("Hello", "stop")] * 3
    assert_counts_add_up(edge, 3, 0, 0)


@pytest.mark.parametrize(("signs", "ready"), [([], False), ([Piece()], True)], ids=["nothing", "a sign of life"])
async def test_callers_with_little_time_are_no_doubt_of_a_backend_that_shows_it_reads(
    edge, monkeypatch, signs, ready
) -> None:
    monkeypatch.setattr(readiness, "_TIME_ENOUGH_S", 0.0)

    async def generate(work, timeout_s):
        for sign in signs:
            yield sign
        await asyncio.Event().wait()

    edge.leaf.generate = generate
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"x-request-timeout-ms": "50"}
    asking = [edge.http.post("/v1/chat/completions", json=body, headers=headers) for _ in range(3)]
    assert {response.status_code for response in await asyncio.gather(*asking)} == {504}
    assert edge.service._readiness.is_ready("chat") is ready


@pytest.mark.parametrize("fault", [BackendFailed("Request cancelled by client"), BackendUnavailable("cut off")])
async def test_a_backend_that_says_first_that_the_deadline_cut_it_off_has_not_failed(edge, fault) -> None:
    async def generate(work, timeout_s):
        yield Piece("Hel")
        time.sleep(timeout_s + 0.001)  # noqa: ASYNC251 - our own timer cannot fire meanwhile
        raise fault

    edge.leaf.generate = generate
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
    response = await edge.http.post("/v1/chat/completions", json=body, headers={"x-request-timeout-ms": "30"})
    assert response.status_code == 504
    assert_counts_add_up(edge, 0, 1, 0)
    assert edge.service.ready_model(edge.app.state.services.catalogue.resolve("chat"))


async def test_a_backend_that_ends_without_a_reason_has_failed(edge) -> None:
    edge.leaf.script = [Piece("Hel")]
    response = await edge.chat()
    assert response.status_code == 502
    assert "without saying why" in response.json()["error"]["message"]
    assert_counts_add_up(edge, 0, 0, 1)


async def test_a_choice_that_nobody_asked_for_is_a_failure_of_the_backend(edge) -> None:
    edge.leaf.script = [Piece("Hello", "stop", choice=1)]
    assert (await edge.chat()).status_code == 502


async def test_nothing_follows_the_end_of_a_choice(edge) -> None:
    edge.leaf.script = [Piece("Hello", "stop"), Piece(" and more"), Piece("", "length")]
    body = (await edge.chat()).json()
    assert body["choices"][0]["message"]["content"] == "Hello"
    assert body["choices"][0]["finish_reason"] == "stop"


# Figures


async def test_usage_of_several_calls_adds_up_and_counts_the_prompt_once(edge) -> None:
    edge.leaf.script = [Piece("Hello", "stop"), Piece(usage=Usage(7, 3, cached_tokens=2))]
    usage = (await edge.chat(n=2)).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (7, 6, 13)
    assert told(edge, "zooserve_tokens_total", direction="output") == 6


async def test_a_count_that_came_on_the_way_does_not_hide_what_came_after_it(edge) -> None:
    edge.leaf.script = [Piece("He", usage=Usage(7, 1)), Piece("llo"), BackendFailed("broken")]
    await streamed(edge)
    assert told(edge, "zooserve_tokens_total", direction="output") == 5
    assert told(edge, "zooserve_tokens_total", direction="input") == 7


@pytest.mark.parametrize(
    "first",
    [
        Piece(tool_calls=(ToolCallPart(0, '{"a": 1}', "call_1", "f"),)),
        Piece(reasoning="Well, "),
        Piece(refusal="No"),
        Piece("Hello"),
    ],
    ids=["tool call", "reasoning", "refusal", "text"],
)
async def test_the_first_token_is_whatever_comes_first_and_an_empty_piece_is_none(edge, first) -> None:
    edge.leaf.script = [Piece(""), Piece(usage=Usage(7, 0)), first, Piece("", "stop")]
    await streamed(edge)
    assert told(edge, "zooserve_time_to_first_token_seconds_count") == 1


async def test_calls_of_tools_and_thoughts_are_tokens_too(edge) -> None:
    edge.leaf.script = [
        Piece(reasoning="Hm"),
        Piece(tool_calls=(ToolCallPart(0, "{}", "call_1", "f"),)),
        Piece("", "stop"),
    ]
    assert (await edge.chat()).json()["usage"]["completion_tokens"] == len("Hm" + "f" + "{}")


async def test_the_engines_figures_become_series(edge) -> None:
    report = EngineReport(3, 1, draft_tokens=8, accepted_draft_tokens=6, acceptance_rate=0.75)
    edge.leaf.script = [Piece("Hel"), Piece("lo"), Piece("", "stop", TIMINGS, report=report)]
    await edge.chat()
    for phase, spent_s in (("queue", 0.25), ("prefill", 0.5), ("decode", 1.0)):
        assert told(edge, "zooserve_engine_phase_seconds_sum", phase=phase) == spent_s
    assert told(edge, "zooserve_delivery_delay_seconds_count") == 1
    assert told(edge, "zooserve_time_per_output_token_seconds_count") == 1
    assert told(edge, "zooserve_admission_wait_seconds_count") == 1
    assert [told(edge, "zooserve_leaf_kv_blocks_total", state=state) for state in ("reused", "missed")] == [3, 1]
    assert [told(edge, "zooserve_draft_tokens_total", state=state) for state in ("accepted", "rejected")] == [6, 2]
    assert told(edge, "zooserve_draft_acceptance_rate_sum") == 0.75


async def test_figures_that_come_after_the_end_of_a_choice_are_its_own(edge) -> None:
    edge.leaf.script = [Piece("Hello", "stop"), Piece(usage=Usage(7, 3), timings=TIMINGS)]
    await edge.chat()
    assert told(edge, "zooserve_engine_phase_seconds_sum", phase="prefill") == TIMINGS.prefill_s
    assert edge.span("prefill").end_time is not None


# Spans


async def test_a_finished_chat_tells_where_its_time_went_below_the_callers_span(edge) -> None:
    edge.leaf.script = [Piece("Hello"), Piece("", "stop", Timings(queue_s=1e-6, prefill_s=2e-6, decode_s=3e-6))]
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"traceparent": TRACEPARENT, "x-request-id": "mine"}
    await edge.http.post("/v1/chat/completions", json=body, headers=headers)
    whole, chat = edge.span("zooserve.request"), edge.span("chat chat")
    assert format_trace_id(whole.context.trace_id) == TRACEPARENT[3:35]
    assert format_span_id(whole.parent.span_id) == TRACEPARENT[36:52]
    assert [span.name for span in edge.below(whole)] == ["parse", "template", "chat chat"]
    assert whole.attributes["zooserve.request_id"] == "mine"
    assert whole.attributes["http.route"] == "/v1/chat/completions"
    assert whole.attributes["http.response.status_code"] == 200
    assert whole.attributes["zooserve.time_to_first_token_s"] > 0
    assert chat.attributes["gen_ai.request.model"] == "chat"
    assert chat.attributes["gen_ai.usage.output_tokens"] == 5
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert chat.attributes["zooserve.model_version"] == "1"
    assert chat.attributes["zooserve.outcome"] == whole.attributes["zooserve.outcome"] == "ok"
    assert chat.status.is_ok
    children = edge.below(chat)
    assert [child.name for child in children] == ["admission", "queue", "prefill", "decode", "delivery"]
    assert [child.end_time - child.start_time for child in children[1:4]] == pytest.approx([1e3, 2e3, 3e3], abs=2000)
    assert all(abs(before.end_time - after.start_time) < 1e6 for before, after in pairwise(children[1:]))
    assert all(whole.start_time <= child.start_time <= child.end_time <= whole.end_time for child in children)


async def test_phases_touch_whatever_runs_between_two_looks_at_the_clocks(edge, monkeypatch) -> None:
    told_ns, later = time.time_ns, itertools.count(0, 5_000_000)
    monkeypatch.setattr(tracing.time, "time_ns", lambda: told_ns() + next(later))
    edge.leaf.script = [Piece("Hello"), Piece("", "stop", Timings(queue_s=1e-6, prefill_s=2e-6, decode_s=3e-6))]
    await edge.chat()
    phases = edge.below(edge.span("chat chat"))[1:]
    assert len(phases) == 4
    assert all(before.end_time == after.start_time for before, after in pairwise(phases))


async def test_a_completion_is_told_from_a_chat(edge) -> None:
    await edge.http.post("/v1/completions", json={"model": "chat", "prompt": "A"})
    await edge.chat()
    assert edge.span("text_completion chat").attributes["gen_ai.operation.name"] == "text_completion"
    assert edge.span("chat chat").attributes["gen_ai.operation.name"] == "chat"


async def test_a_chat_that_was_left_tells_what_the_router_saw_and_says_so(edge) -> None:
    edge.leaf.hold = asyncio.Event()
    serving, gone = connection(edge, stream=True)
    leaving = asyncio.create_task(serving)
    await edge.leaf.said.wait()
    gone.set()
    await leaving
    whole, chat = edge.span("zooserve.request"), edge.span("chat chat")
    children = edge.below(chat)
    assert chat.attributes["zooserve.outcome"] == whole.attributes["zooserve.outcome"] == "cancelled"
    assert chat.attributes["zooserve.broken_off_by"] == "hang_up"
    assert chat.attributes["gen_ai.usage.output_tokens"] == 5
    assert chat.status.is_ok, "that a caller leaves is no error"
    assert whole.status.is_ok
    assert whole.attributes["http.response.status_code"] == 200, "which its stream had begun with"
    assert [child.name for child in children] == ["admission", "first_token", "decode"]
    assert {child.attributes.get("zooserve.clock") for child in children[1:]} == {"router"}


async def test_of_an_answer_that_never_began_no_status_is_told(edge) -> None:
    edge.leaf.hold = asyncio.Event()
    serving, gone = connection(edge)
    leaving = asyncio.create_task(serving)
    await edge.leaf.said.wait()
    gone.set()
    await leaving
    whole = edge.span("zooserve.request")
    assert whole.attributes["zooserve.outcome"] == "cancelled"
    assert "http.response.status_code" not in whole.attributes


async def test_a_chat_that_never_got_room_tells_its_wait_and_why_it_ended(edge) -> None:
    edge.budget.take(1000)
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
    await edge.http.post("/v1/chat/completions", json=body, headers={"x-request-timeout-ms": "20"})
    whole, chat, admission = edge.span("zooserve.request"), edge.span("chat chat"), edge.span("admission")
    assert chat.attributes["error.type"] == whole.attributes["error.type"] == "DeadlineExceeded"
    assert not whole.status.is_ok
    assert edge.below(chat) == [admission]
    assert admission.end_time > admission.start_time


async def test_an_answer_that_falls_silent_ends_with_an_error_and_is_told_apart_from_a_deadline(edge, events) -> None:
    edge.leaf.hold = asyncio.Event()  # which nobody sets: a stub that died under its streams
    answer = await edge.chat(stream=True)
    *_, error, done = events(answer)
    assert json.loads(error)["error"]["code"] == "backend_unavailable"
    assert "stopped in the middle" in error
    assert done == "[DONE]"
    await until(lambda: edge.budget.taken_tokens == 0)  # room that was left settles first
