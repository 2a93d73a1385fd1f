"""A chat's account over the real leaf: where its time went, what its cache did, and what is told of one broken off."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from zooserve.processes.ports import reserved_ports
from zooserve.settings import AccessLogSettings, Settings, TraceLogSettings, TritonSettings
from zooserve_observability.spans import Span
from zooserve_observability.trace_log import TraceLog
from zooserve_observability.trace_receiver import TraceReceiver
from zooserve_router.app import create_app

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[3]
TRACE = "4bf92f3577b34da6a3ce929d0e0e47"
LONG: dict[str, Any] = {"content": "Count from one to two hundred, in words.", "max_tokens": 400}
IN_FLIGHT = 40
"""What the leaf writes at most before a cancellation reaches it (one to three tokens were seen)."""


@dataclass(frozen=True)
class Watched:
    """A router over the leaf alone, and the trace log that it tells."""

    http: httpx.AsyncClient
    log: TraceLog

    async def chat(self, number: int, content: str, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        """A chat in the trace of this number."""
        body = {"model": "chat", "messages": [{"role": "user", "content": content}], "temperature": 0, **fields}
        traced = {"traceparent": f"00-{trace_id(number)}-00f067aa0ba902b7-01", **(headers or {})}
        return await self.http.post("/v1/chat/completions", json=body, headers=traced)

    async def spans(self, number: int) -> dict[str, Span]:
        """The spans of that trace by name, once the last of them has come: the request's own."""
        spans: dict[str, Span] = {}
        while "zooserve.request" not in spans:
            await asyncio.sleep(0.01)
            spans = {span.name: span for span in self.log.spans(trace_id(number))}
        return spans

    async def told(self, sample: str, **labels: str) -> float:
        """A series' value."""
        page = (await self.http.get("/metrics")).text
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        return sum(each.value for each in samples if each.name == sample and labels.items() <= each.labels.items())

    async def told_tokens(self) -> int:
        """Tokens that somebody got or that are known to be wasted; answers that were left are among those written."""
        written = await self.told("zooserve_tokens_total", direction="output")
        return int(written + await self.told("zooserve_wasted_tokens_total", reason="stop"))


async def settled(leaf: Any) -> int:
    """What the leaf has written by now, once it rests: its page is up to a quarter of a second old."""
    told, before = -1, -2
    while told != before:
        before = (await leaf.until(lambda load: load.active_requests == 0)).generated_tokens
        await asyncio.sleep(1)
        told = (await leaf.load()).generated_tokens
    return told


async def short_of_it(leaf: Any) -> dict[str, str]:
    """A deadline in the middle of the long answer, on whatever machine: as long as a tenth of it takes."""
    began = time.monotonic()
    await leaf.answer(LONG["content"], sampling_param_max_tokens=40)
    return {"x-request-timeout-ms": f"{(time.monotonic() - began) * 1000:.0f}"}


def trace_id(number: int) -> str:
    return f"{TRACE}{number:02x}"


@asynccontextmanager
async def watched(leaf: Any) -> AsyncIterator[Watched]:
    no_zoo, log_port = reserved_ports(2)
    host, _, grpc_port = leaf.server.addresses.grpc.partition(":")
    settings = Settings(
        catalogue=ROOT / "zoo.yaml",
        repository=ROOT / "model_repository",
        models="chat",
        zoo=TritonSettings(http_port=no_zoo),
        leaf=TritonSettings(host=host, grpc_port=int(grpc_port)),
        trace_log=TraceLogSettings(port=log_port),
        access_log=AccessLogSettings(enabled=False),
    )
    app, log = create_app(settings), TraceLog(2**20)
    async with (
        TraceReceiver(log, "127.0.0.1", log_port).serving(),
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://router", timeout=60) as http,
    ):
        while (await http.get("/health/ready")).status_code != 200:  # noqa: ASYNC110 - nor has readiness
            await asyncio.sleep(0.05)
        yield Watched(http, log)


async def test_an_answer_tells_its_phases_by_the_engines_clock_and_what_came_on_top(leaf) -> None:
    async with watched(leaf) as router:
        answer = await router.chat(1, "What is the capital of France?", max_tokens=16)
        assert answer.status_code == 200
        spans = await router.spans(1)
        parts = [spans[name] for name in ("queue", "prefill", "decode", "delivery")]
        whole, chat = spans["zooserve.request"], spans["chat chat"]
        assert {span.parent_id for span in (spans["parse"], spans["template"], chat)} == {whole.span_id}
        assert {span.parent_id for span in (spans["admission"], *parts)} == {chat.span_id}
        assert whole.parent_id == "00f067aa0ba902b7"
        assert chat.attributes["gen_ai.usage.output_tokens"] == str(answer.json()["usage"]["completion_tokens"])
        assert spans["prefill"].attributes["zooserve.clock"] == "engine"
        assert spans["prefill"].end_ns > spans["prefill"].start_ns
        assert chat.start_ns <= parts[0].start_ns
        assert parts[-1].end_ns <= chat.end_ns
        assert await router.told("zooserve_engine_phase_seconds_count", phase="decode") == 1
        assert await router.told("zooserve_delivery_delay_seconds_count") == 1
        assert await router.told("zooserve_chat_held_tokens") == 0


async def test_a_prompt_that_was_asked_before_is_found_in_the_leafs_cache(leaf) -> None:
    async with watched(leaf) as router:
        words = " ".join(f"word{number}" for number in range(150))
        await router.chat(2, words, max_tokens=1)
        missed, reused = [
            await router.told("zooserve_leaf_kv_blocks_total", state=state) for state in ("missed", "reused")
        ]
        assert missed > 5
        await router.chat(3, words, max_tokens=1)
        assert await router.told("zooserve_leaf_kv_blocks_total", state="reused") > reused + 5


async def test_an_answer_cut_by_its_deadline_frees_the_leaf_and_tells_what_the_router_saw(leaf) -> None:
    async with watched(leaf) as router:
        answer = await router.chat(4, **LONG, headers=await short_of_it(leaf))
        assert answer.status_code == 504
        await leaf.until(lambda load: load.active_requests == load.live_kv_tokens == 0)
        spans = await router.spans(4)
        assert spans["chat chat"].attributes["zooserve.broken_off_by"] == "deadline"
        assert spans["chat chat"].attributes["error.type"] == "DeadlineExceeded"
        assert spans["first_token"].attributes["zooserve.clock"] == "router"
        assert await router.told("zooserve_chat_choices_issued_total") == 1
        assert await router.told("zooserve_chat_choices_ended_total", outcome="cancelled") == 1
        written = await router.told("zooserve_tokens_total", direction="output")
        assert await router.told("zooserve_wasted_tokens_total", reason="deadline") == written


async def test_a_stop_string_frees_the_leaf(leaf) -> None:
    async with watched(leaf) as router:
        answer = await router.chat(5, **LONG, stop=[" "])
        assert answer.json()["choices"][0]["finish_reason"] == "stop"
        await leaf.until(lambda load: load.active_requests == load.live_kv_tokens == 0)
        assert await router.told("zooserve_chat_choices_ended_total", outcome="finished") == 1
        assert await router.told("zooserve_chat_held_tokens") == 0


@pytest.mark.parametrize(
    ("asked", "reason", "unsaid"),
    [
        ({"content": LONG["content"], "max_tokens": 16}, "length", 0),
        ({"content": "What is the capital of France?", "max_tokens": 64}, "stop", 1),  # the end-of-turn token
        ({**LONG, "n": 2, "max_tokens": 16}, "length", 0),
    ],
    ids=["to its bound", "to its end", "two choices"],
)
async def test_what_the_leaf_wrote_of_a_whole_answer_is_what_the_caller_got(leaf, asked, reason, unsaid) -> None:
    async with watched(leaf) as router:
        before = await settled(leaf)
        answer = (await router.chat(6, **asked)).json()
        assert {choice["finish_reason"] for choice in answer["choices"]} == {reason}
        got = answer["usage"]["completion_tokens"]
        assert got == await router.told_tokens()
        assert await settled(leaf) - before == got + unsaid


async def test_of_an_answer_that_is_left_little_is_written_that_nobody_knows_of(leaf) -> None:
    async with watched(leaf) as router:
        before = await settled(leaf)
        asking = asyncio.create_task(router.chat(7, **LONG))
        await leaf.until(lambda load: load.generated_tokens - before > 20)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        hung_up = await router.told("zooserve_wasted_tokens_total", reason="hang_up")
        assert hung_up == await router.told_tokens() > 20

        assert (await router.chat(8, **LONG, headers=await short_of_it(leaf))).status_code == 504
        assert await router.told("zooserve_wasted_tokens_total", reason="deadline") > 0
        pacing = 40
        unknown = await settled(leaf) - before - pacing - await router.told_tokens()
        assert 0 <= unknown <= 2 * IN_FLIGHT
