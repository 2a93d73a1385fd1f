"""The answers of both routes, whole and streamed, over a scripted leaf."""

import asyncio
import json

import httpx
import pytest

from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, InternalError, Overloaded
from zooserve_router.chat.generation import Piece, Timings


async def test_a_whole_answer_has_its_text_reason_and_usage(edge) -> None:
    response = await edge.chat("Hi", temperature=0, max_tokens=20)
    body = response.json()
    assert body["object"] == "chat.completion"
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    prompt = edge.leaf.asked[0].prompt
    assert prompt == ("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    prompt_tokens = len(prompt.replace("<|im_start|>", "s").replace("<|im_end|>", "e"))
    assert body["usage"] == {"prompt_tokens": prompt_tokens, "completion_tokens": 5, "total_tokens": prompt_tokens + 5}
    assert response.headers["x-zooserve-model"] == "chat"
    assert "first_token;dur=" in response.headers["server-timing"]


async def test_a_stream_has_one_id_a_role_first_one_finish_reason_a_usage_chunk_and_done(edge, events) -> None:
    response = await edge.chat(stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    *data, done = events(response)
    chunks = [json.loads(line) for line in data]
    assert done == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["object"]) for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks[1:-2]] == ["Hello"]
    assert chunks[-2]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 5
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


async def test_without_include_usage_no_chunk_mentions_usage(edge, events) -> None:
    *data, _ = events(await edge.chat(stream=True))
    assert all("usage" not in json.loads(line) for line in data)


async def test_the_callers_own_system_message_replaces_the_default(edge) -> None:
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    await edge.chat(messages=messages)
    assert edge.leaf.asked[0].prompt.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user")


async def test_content_parts_are_joined(edge) -> None:
    parts = [{"type": "text", "text": "Hi "}, {"type": "text", "text": "there"}]
    await edge.chat(messages=[{"role": "user", "content": parts}])
    assert "user\nHi there<|im_end|>" in edge.leaf.asked[0].prompt


async def test_tokens_that_start_no_turn_are_content(edge) -> None:
    assert (await edge.chat("cp <filename> .")).status_code == 200


async def test_sampling_reaches_the_leaf_as_asked(edge) -> None:
    await edge.chat(
        temperature=0.5,
        top_p=0.9,
        presence_penalty=1,
        frequency_penalty=-1,
        seed=7,
        stop="END",
        max_completion_tokens=9,
    )
    asked = edge.leaf.asked[0].sampling
    assert (asked.temperature, asked.top_p, asked.presence_penalty, asked.frequency_penalty) == (0.5, 0.9, 1, -1)
    assert (asked.seed, asked.stop, asked.max_tokens) == (7, ("END",), 9)


async def test_without_a_seed_two_requests_differ(edge) -> None:
    await edge.chat()
    await edge.chat()
    assert edge.leaf.asked[0].sampling.seed != edge.leaf.asked[1].sampling.seed


async def test_max_tokens_is_clamped_by_the_catalogue_and_by_the_room_left(edge) -> None:
    await edge.chat(max_tokens=5000)
    await edge.chat("x" * 320)
    assert edge.leaf.asked[0].sampling.max_tokens == 100
    prompt = edge.leaf.asked[1].prompt.replace("<|im_start|>", "s").replace("<|im_end|>", "e")
    assert edge.leaf.asked[1].sampling.max_tokens == 400 - len(prompt)


async def test_an_answer_cut_by_its_bound_counts_the_whole_bound(edge, pieces) -> None:
    edge.leaf.script = pieces(["abc"], "length")
    body = (await edge.chat(max_tokens=9)).json()
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 9


@pytest.mark.parametrize("stream", [False, True])
async def test_a_leaked_stop_string_never_comes_through_not_even_in_part(edge, events, pieces, stream) -> None:
    edge.leaf.script = pieces(["one S", "T", "OP two"])
    response = await edge.chat(stop=["STOP"], stream=stream)
    if stream:
        choices = [json.loads(line)["choices"][0] for line in events(response)[:-1]]
        text = "".join(choice["delta"].get("content", "") for choice in choices)
        reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    else:
        choice = response.json()["choices"][0]
        text, reasons = choice["message"]["content"], [choice["finish_reason"]]
    assert (text, reasons) == ("one ", ["stop"])
    assert edge.leaf.open == 0


async def test_what_only_looked_like_a_stop_string_is_not_lost(edge, pieces) -> None:
    edge.leaf.script = pieces(["one ST"])
    assert (await edge.chat(stop=["STOP"])).json()["choices"][0]["message"]["content"] == "one ST"


async def test_several_choices_each_have_their_own_seed_and_end(edge, events) -> None:
    response = await edge.chat(n=3, seed=5, stream=True)
    choices = [json.loads(line)["choices"][0] for line in events(response)[:-1]]
    assert sorted(choice["index"] for choice in choices if choice["finish_reason"]) == [0, 1, 2]
    assert [asked.sampling.seed for asked in edge.leaf.asked] == [5, 6, 7]
    whole = (await edge.chat(n=3)).json()
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["Hello"] * 3


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (BackendUnavailable("gone"), 503),
        (BackendFailed("broken"), 502),
        (Overloaded("full", retry_after_s=2), 429),
    ],
    ids=["unavailable", "failed", "overloaded"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_piece_is_a_status_code(edge, fault, status, stream) -> None:
    edge.leaf.script = [fault]
    response = await edge.chat(stream=stream)
    assert response.status_code == status
    assert response.json()["error"]["message"] == fault.message
    if status == 429:
        assert response.headers["retry-after-ms"] == "2000"
    assert edge.leaf.open == 0


async def test_a_failure_after_the_headers_is_an_error_event_and_done(edge, events) -> None:
    edge.leaf.script = [Piece("Hel"), BackendFailed("broken")]
    response = await edge.chat(stream=True)
    *_, error, done = events(response)
    assert response.status_code == 200
    assert json.loads(error)["error"]["code"] == "backend_failed"
    assert done == "[DONE]"
    assert b'outcome="BackendFailed"' in edge.metrics.exposition()


async def test_a_deadline_before_the_first_piece_is_504_and_frees_the_leaf(edge) -> None:
    edge.leaf.script = [Piece(""), Piece("late", "stop")]
    edge.leaf.hold = asyncio.Event()
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    response = await edge.http.post("/v1/chat/completions", json=body, headers={"x-request-timeout-ms": "50"})
    assert response.status_code == 504
    assert edge.leaf.open == 0


async def test_a_deadline_in_the_middle_is_an_error_event(edge, events) -> None:
    edge.leaf.hold = asyncio.Event()
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    response = await edge.http.post("/v1/chat/completions", json=body, headers={"x-request-timeout-ms": "50"})
    *_, error, done = events(response)
    assert json.loads(error)["error"]["code"] == "deadline_exceeded"
    assert done == "[DONE]"
    assert edge.leaf.open == 0
    assert f"{WASTED_BY_DEADLINE} 5.0" in edge.metrics.exposition().decode()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_client_that_hangs_up_frees_the_leaf_and_the_budget(edge, stream) -> None:
    edge.leaf.hold = asyncio.Event()
    gone = asyncio.Event()
    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if messages:
            return messages.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message) -> None: ...

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [(b"content-type", b"application/json")],
        "query_string": b"",
        "asgi": {"version": "3.0"},
    }
    serving = asyncio.create_task(edge.app(scope, receive, send))
    await edge.leaf.said.wait()
    assert edge.leaf.open == 1
    assert edge.budget.taken_tokens > 0
    gone.set()
    await serving
    assert edge.leaf.open == 0
    await asyncio.sleep(0.001)  # the settling time is zero here, and still a turn of the loop
    assert edge.budget.taken_tokens == 0
    assert b'outcome="cancelled"' in edge.metrics.exposition()


WASTED_BY_DEADLINE = 'zooserve_wasted_tokens_total{class="interactive",model="chat",reason="deadline",version="1"}'
WASTED_BY_ERROR = WASTED_BY_DEADLINE.replace("deadline", "error")
LATE = Piece("late", "stop")
WRITTEN = 'zooserve_tokens_total{class="interactive",direction="output",model="chat",version="1"}'


async def test_an_answer_that_its_server_broke_off_is_written_and_wasted_by_an_error(edge) -> None:
    edge.leaf.script = [Piece("Hel"), BackendFailed("broken")]
    await edge.chat(stream=True)
    told = edge.metrics.exposition().decode()
    assert f"{WASTED_BY_ERROR} 3.0" in told
    assert f"{WRITTEN} 3.0" in told


async def test_a_finished_choice_is_not_wasted_with_its_unfinished_sibling(edge) -> None:
    said = edge.leaf.generate

    async def generate(work, timeout_s):
        edge.leaf.script = [Piece("whole"), Piece("", "stop")] if work.sampling.seed == 5 else [Piece("half"), LATE]
        async for piece in said(work, timeout_s):
            if piece is LATE:
                await asyncio.Event().wait()
            yield piece

    edge.leaf.generate = generate
    headers = {"x-request-timeout-ms": "50"}
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "n": 2, "seed": 5, "stream": True}
    await edge.http.post("/v1/chat/completions", json=body, headers=headers)
    told = edge.metrics.exposition().decode()
    assert f"{WASTED_BY_DEADLINE} 4.0" in told
    assert f"{WRITTEN} 9.0" in told


async def test_a_client_that_stops_reading_is_cut_off_at_its_deadline_and_holds_no_budget(edge) -> None:
    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    full = asyncio.Event()

    async def receive():
        return messages.pop() if messages else await asyncio.Future()

    async def send(message) -> None:
        if message["type"] == "http.response.body":
            full.set()
            await asyncio.Event().wait()

    headers = [(b"x-request-timeout-ms", b"100")]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers, "query_string": b""}
    serving = asyncio.create_task(edge.app(scope, receive, send))
    await full.wait()
    assert edge.budget.taken_tokens > 0
    with pytest.raises(DeadlineExceeded):
        await serving
    assert edge.leaf.open == 0
    await asyncio.sleep(0.001)  # the settling time is zero here, and still a turn of the loop
    assert edge.budget.taken_tokens == 0
    assert b'outcome="DeadlineExceeded"' in edge.metrics.exposition()


async def test_the_engines_phases_show_in_the_server_timing_of_a_whole_answer(edge) -> None:
    edge.leaf.script = [Piece("Hello"), Piece("", "stop", Timings(queue_s=0.001, prefill_s=0.02, decode_s=0.3))]
    timing = (await edge.chat()).headers["server-timing"]
    assert "queue;dur=1.00, prefill;dur=20.00, decode;dur=300.00" in timing


async def test_a_consumer_that_fails_to_send_closes_the_leaf(edge) -> None:
    edge.leaf.hold = asyncio.Event()

    async def receive():
        if messages:
            return messages.pop()
        return await asyncio.Future()

    async def send(message) -> None:
        raise OSError("connection reset")

    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
    with pytest.raises(InternalError):
        await edge.app(scope, receive, send)
    assert edge.leaf.open == 0


async def test_completions_take_raw_prompts_several_and_echo_them(edge) -> None:
    body = {"model": "chat", "prompt": ["<|im_start|>user\nHi", "A"], "n": 2, "echo": True}
    answer = (await edge.http.post("/v1/completions", json=body)).json()
    assert [choice["text"] for choice in answer["choices"]] == ["<|im_start|>user\nHiHello"] * 2 + ["AHello"] * 2
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 9
    assert edge.leaf.asked[0].sampling.max_tokens == 16


async def test_completions_pass_token_ids_on_as_their_text(edge, byte_tokenizer) -> None:
    ids = byte_tokenizer.tokenizer.encode("Grüße", add_special_tokens=False).ids
    await edge.http.post("/v1/completions", json={"model": "chat", "prompt": ids})
    assert edge.leaf.asked[0].prompt == "Grüße"


async def test_a_streamed_completion_ends_with_its_reason_usage_and_done(edge, events) -> None:
    body = {"model": "chat", "prompt": "A", "stream": True, "echo": True, "stream_options": {"include_usage": True}}
    response = await edge.http.post("/v1/completions", json=body)
    *data, done = events(response)
    chunks = [json.loads(line) for line in data]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1]) == "AHello"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"] == {"prompt_tokens": 1, "completion_tokens": 5, "total_tokens": 6}
    assert done == "[DONE]"


async def test_line_breaks_of_other_alphabets_do_not_break_events(edge, pieces) -> None:
    edge.leaf.script = pieces(["a\u2028b\u0085c"])
    response: httpx.Response = await edge.chat(stream=True)
    lines = [line for line in response.text.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert any(json.loads(line[6:])["choices"][0]["delta"].get("content") == "a\u2028b\u0085c" for line in lines[:-1])


async def test_a_leaf_that_says_nothing_three_times_is_probed_again(edge) -> None:
    edge.leaf.script = [DeadlineExceeded("no answer")]
    for _ in range(3):
        assert (await edge.chat()).status_code == 504
    response = await edge.chat()
    assert response.status_code == 503
    assert "3 requests in a row" in response.json()["error"]["message"]
