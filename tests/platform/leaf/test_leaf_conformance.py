"""Each probe of the conformance suite is able to fail: a leaf that keeps the contract, with one fault at a time."""

import asyncio
import itertools
import json
import re
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from zooserve.errors import NotALeaf
from zooserve.leaf.conformance import PROBES, Report, Response, Result, Shape, TensorShape, check_leaf, wire_of
from zooserve.leaf.conformance.http_wire import HttpLeaf
from zooserve.leaf.contract import CANCELLED, ERROR_PREFIX, INPUTS, OUTPUTS, PERF_OUTPUTS, STOP_NEEDS_ID
from zooserve.leaf.release import load_release
from zooserve_cli.main import app

PROMPT = "Once upon a time"
WORDS = [
    f" {word}" for word in ("the quick brown fox jumps over the lazy dog and runs off into the woods " * 40).split()
]


def declared(tensors: Mapping[str, Any]) -> dict[str, TensorShape]:
    return {name: TensorShape(each.datatype, each.dims, each.optional) for name, each in tensors.items()}


class FakeLeaf:
    """A leaf that writes the same words after every prompt, and keeps the contract except for `fault`."""

    name = "tensorrt_llm at fake://leaf"
    refuses_unknown_inputs = True

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.active = 0
        self.left = 0
        self.looks = 0
        self.chance = itertools.count(1)
        self.running: dict[str, asyncio.Event] = {}

    async def shape(self) -> Shape:
        inputs, outputs = declared(INPUTS), declared(OUTPUTS)
        if self.fault == "a tensor less":
            del inputs["sampling_param_seed"]
        if self.fault == "another type":
            inputs["sampling_param_seed"] = TensorShape("INT64", (1,), optional=True)
        if self.fault == "logprobs":
            inputs["n"] = TensorShape("INT32", (1,), optional=True)
        if self.fault == "frontend's names":
            inputs["max_tokens"] = TensorShape("INT32", (1,), optional=True)
        if self.fault == "release 1.2.1":
            inputs = declared(load_release("1.2.1").inputs)
        return Shape(inputs, outputs, self.fault != "not decoupled", 8 if self.fault == "batches" else 0)

    async def metrics(self) -> str | None:
        if self.fault == "no metrics":
            return None
        if self.fault == "counts cancelled":
            return f'nv_inference_request_failure{{model="m",reason="CANCELED"}} {self.left}\n'
        if self.fault == "counts nothing":
            return "nothing of requests here\n"
        if self.fault == "gauge stands still":
            return 'nv_trt_llm_request_metrics{model="m",request_type="active"} 0\n'
        if self.fault == "stale at first":
            self.looks += 1
        shown = max(self.active, int(0 < self.looks < 3))
        return f'nv_trt_llm_request_metrics{{model="m",request_type="active"}} {shown}\n'

    async def responses(self, inputs: Mapping[str, Any], request_id: str = "") -> AsyncGenerator[Response, None]:
        if inputs.get("stop"):
            yield self._stopped(request_id)
            return
        if error := self._refusal(inputs):
            yield Response(error=error, status=self._status(inputs))
            return
        stop = self.running.setdefault(request_id, asyncio.Event())
        self.active += 1
        try:
            async for response in self._answer(inputs, stop):
                yield response
        except GeneratorExit:
            self.left += 1
            raise
        finally:
            self.running.pop(request_id, None)
            if self.fault != "slot kept":
                self.active -= 1

    def _stopped(self, request_id: str) -> Response:
        if not request_id:
            return Response() if self.fault == "stop without id" else Response(error=STOP_NEEDS_ID)
        if request_id in self.running and self.fault != "stop ignored":
            self.running[request_id].set()
        return Response() if self.fault == "stop untold" else Response(error=CANCELLED)

    def _status(self, inputs: Mapping[str, Any]) -> int | None:
        return 400 if self.fault == "told apart" and "sampling_param_temperature" in inputs else 500

    def _refusal(self, inputs: Mapping[str, Any]) -> str | None:
        if unknown := set(inputs) - set(INPUTS):
            return None if self.fault == "unknown input taken" else f"unexpected inference input {unknown}"
        if "lora_path" in inputs:
            return None if self.fault == "adapter ignored" else f"{ERROR_PREFIX}lora_path does not exist"
        bad = inputs.get("sampling_param_temperature", 0) < 0 or inputs.get("sampling_param_top_p", 0) > 1
        if not bad or self.fault == "wrong values taken":
            return None
        return "temperature is wrong" if self.fault == "no prefix" else f"{ERROR_PREFIX}temperature is wrong"

    async def _answer(self, inputs: Mapping[str, Any], stop: asyncio.Event) -> AsyncGenerator[Response, None]:
        arrival = time.time_ns() if self.fault == "wall clock" else time.monotonic_ns()
        pieces = self._pieces(inputs)
        whole, reason, stop_reason = self._ended(inputs, pieces)
        texts = [
            text for count in range(1, len(pieces)) if (text := "".join(pieces[:count])) != whole and text in whole
        ]
        streamed = [*texts, whole] if inputs.get("streaming") or self.fault == "streams always" else [whole]
        if self.fault == "deltas" and inputs.get("streaming"):
            streamed = pieces
        for index, text in enumerate(streamed):
            if stop.is_set():
                yield Response(error=CANCELLED)
                return
            last = index == len(streamed) - 1
            yield self._response(inputs, text, last, reason, stop_reason, arrival)
            await asyncio.sleep(0)

    def _pieces(self, inputs: Mapping[str, Any]) -> list[str]:
        count = inputs.get("sampling_param_max_tokens", 32) + (5 if self.fault == "too many tokens" else 0)
        if self.fault == "no default" and "sampling_param_max_tokens" not in inputs:
            count = 80
        offset = inputs.get("sampling_param_seed", 0) if self.fault != "seed ignored" else 0
        if self.fault == "seed forgotten" and offset:
            offset = next(self.chance)
        texts = inputs["text_input"]
        if self.fault == "second text read" and isinstance(texts, list):
            offset = 3
        pieces = WORDS[offset : offset + count]
        return [*pieces[:2], "\ufffd", *pieces[2:]] if self.fault == "broken character" else pieces

    def _ended(self, inputs: Mapping[str, Any], pieces: list[str]) -> tuple[str, str, str]:
        whole = "".join(pieces)
        for string in inputs.get("sampling_param_stop", ()):
            if string in whole:
                end = whole.index(string) + (len(string) if self.fault == "stop string leaks" else 0)
                return whole[:end], "length" if self.fault == "stop untold reason" else "stop", string
        return whole, "length", "None"

    def _response(
        self, inputs: Mapping[str, Any], text: str, last: bool, reason: str, stop_reason: str, arrival: int
    ) -> Response:
        echoes = not inputs.get("sampling_param_exclude_input_from_output") or self.fault == "always echoes"
        if self.fault == "never echoes":
            echoes = False
        prompt = inputs["text_input"] if isinstance(inputs["text_input"], str) else inputs["text_input"][0]
        outputs = {"text_output": (prompt if echoes else "") + text}
        if inputs.get("return_finish_reason"):
            outputs["finish_reason"] = reason if last or self.fault == "early reason" else "None"
        if inputs.get("return_stop_reason"):
            outputs["stop_reason"] = (stop_reason if last else "None").replace(
                "None", "" if self.fault == "empty for none" else "None"
            )
        if inputs.get("return_cumulative_logprob"):
            outputs["cumulative_logprob"] = "much" if self.fault == "no number" else "-1.5"
        if inputs.get("sampling_param_return_perf_metrics") and (last or self.fault == "early figures"):
            outputs |= self._figures(arrival)
        kind = "INT64" if self.fault == "real numbers" else "BYTES"
        return Response(outputs, {name: kind if name in PERF_OUTPUTS else "BYTES" for name in outputs})

    def _figures(self, arrival: int) -> dict[str, str]:
        now = time.monotonic_ns() if self.fault != "wall clock" else time.time_ns()
        times = [arrival, arrival, now, now]
        if self.fault == "times in disorder":
            times.reverse()
            times[0] += 1
        if self.fault == "times too long":
            times = [arrival - 10**10, arrival, now, now]
        names = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
        figures = dict.fromkeys(PERF_OUTPUTS, "0") | dict(zip(names, map(str, times), strict=True))
        if self.fault == "figure missing":
            del figures["kv_cache_hit_rate"]
        if self.fault == "acceptance above 1":
            figures["acceptance_rate"] = "3.5"
        return figures


async def report_of(fault: str = "") -> Report:
    return await check_leaf(FakeLeaf(fault), PROMPT, timeout_s=5)


async def test_a_leaf_that_keeps_the_contract_passes_every_probe() -> None:
    report = await report_of()
    assert [(result.probe, result.why) for result in report.results if result.outcome != "pass"] == []
    assert report.passes


async def test_the_ten_traps_each_have_a_probe() -> None:
    assert {probe.trap for probe in PROBES} == {None, *range(1, 11)}
    assert len({probe.name for probe in PROBES}) == len(PROBES)


FAULTS = {
    "a tensor less": ("tensors", "sampling_param_seed is missing"),
    "another type": ("tensors", r"is INT64 \[1\], the contract has UINT64 \[1\]"),
    "logprobs": ("lacks", "the contract has no n"),
    "not decoupled": ("decoupled", "nothing can be streamed"),
    "batches": ("decoupled", "max_batch_size is 8"),
    "frontend's names": ("names-unlike-the-frontend", "max_tokens"),
    "unknown input taken": ("names-unlike-the-frontend", "taken without a word"),
    "adapter ignored": ("lora-path", "was ignored"),
    "deltas": ("cumulative-text", "does not contain it"),
    "never echoes": ("echo", "not in front"),
    "always echoes": ("echo", "in spite of"),
    "second text read": ("first-text-only", "changed the answer"),
    "broken character": ("whole-characters", "broken character"),
    "streams always": ("one-response", "one response must come"),
    "too many tokens": ("max-tokens", "max_tokens 2 gave 7 messages"),
    "no default": ("max-tokens", "the default is 32 tokens"),
    "early reason": ("finish-reasons", "before the last says finish_reason length"),
    "stop string leaks": ("stop-strings", "is in the text"),
    "stop untold reason": ("stop-strings", "not stop and the stop string"),
    "seed ignored": ("seed", "all give the same text"),
    "seed forgotten": ("seed", "and then"),
    "no prefix": ("every-failure-alike", "without 'Error generating request: '"),
    "wrong values taken": ("every-failure-alike", "answered as if it were right"),
    "told apart": ("every-failure-alike", "told apart by HTTP status"),
    "real numbers": ("text-scalars", "every output as BYTES"),
    "empty for none": ("text-scalars", "not the text None"),
    "no number": ("text-scalars", "which is no number"),
    "early figures": ("perf-outputs", "already has"),
    "figure missing": ("perf-outputs", "lacks kv_cache_hit_rate"),
    "acceptance above 1": ("perf-outputs", "acceptance_rate is 3.5"),
    "times in disorder": ("steady-clock", "not in order"),
    "times too long": ("steady-clock", "of an answer that took"),
    "wall clock": ("steady-clock", "wall clock"),
    "slot kept": ("cancel-frees-the-slot", "still taken"),
    "counts nothing": ("cancel-frees-the-slot", "no request counts as cancelled"),
    "stop ignored": ("stop-by-id", "went on to its end"),
    "stop untold": ("stop-by-id", "got a plain answer"),
    "stop without id": ("stop-needs-an-id", "got a plain answer"),
}


@pytest.mark.parametrize(("fault", "probe", "why"), [(fault, *told) for fault, told in FAULTS.items()], ids=FAULTS)
async def test_each_fault_fails_the_probe_of_its_name(
    fault: str, probe: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zooserve.leaf.conformance.leaving._PATIENCE_S", 0.3)
    asked = [each for each in PROBES if each.name == probe]
    (result,) = (await check_leaf(FakeLeaf(fault), PROMPT, timeout_s=5, probes=asked)).results
    assert result.outcome == "fail"
    assert re.search(why, result.why), result.why


def test_every_probe_is_made_to_fail_by_some_fault() -> None:
    assert {probe for probe, _ in FAULTS.values()} == {probe.name for probe in PROBES}


async def test_an_older_releases_tensors_pass_and_are_told() -> None:
    results = {result.probe: result for result in (await report_of("release 1.2.1")).results}
    assert results["tensors"].why == "tensor for tensor those of release 1.2.1"
    assert results["lora-path"].outcome == "not applicable"


async def test_what_cannot_be_measured_is_not_called_a_pass() -> None:
    report = await report_of("no metrics")
    results = {result.probe: result for result in report.results}
    assert results["cancel-frees-the-slot"].outcome == "not applicable"
    assert "--metrics" in results["cancel-frees-the-slot"].why
    assert report.passes
    assert report.summary().endswith("1 not applicable")


async def cancel_result(fault: str) -> Result:
    asked = [probe for probe in PROBES if probe.name == "cancel-frees-the-slot"]
    return (await check_leaf(FakeLeaf(fault), PROMPT, timeout_s=5, probes=asked)).results[0]


async def test_a_server_without_a_gauge_of_slots_is_judged_by_tritons_count_of_cancelled_requests() -> None:
    result = await cancel_result("counts cancelled")
    assert (result.outcome, result.why) == ("pass", "hanging up is counted as a cancelled request by Triton")


async def test_a_gauge_that_still_shows_the_last_probe_is_waited_for() -> None:
    result = await cancel_result("stale at first")
    assert (result.outcome, result.why) == (
        "pass",
        "hanging up frees the slot, as its own gauge of active requests says",
    )


async def test_a_gauge_that_never_moved_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zooserve.leaf.conformance.leaving._PATIENCE_S", 0.3)
    assert (await cancel_result("gauge stands still")).outcome == "not applicable"


async def test_a_probe_that_never_ends_fails_and_the_next_one_runs() -> None:
    class Silent(FakeLeaf):
        async def responses(self, inputs: Mapping[str, Any], request_id: str = "") -> AsyncGenerator[Response, None]:
            await asyncio.Event().wait()
            yield Response()

    report = await check_leaf(Silent(), PROMPT, timeout_s=0.01)
    results = {result.probe: result for result in report.results}
    assert results["seed"].why == "no end within 0.01 s"
    assert results["tensors"].outcome == "pass"


async def test_a_model_of_another_kind_is_refused_at_once() -> None:
    class Encoder(FakeLeaf):
        async def shape(self) -> Shape:
            return Shape({"input_ids": TensorShape("INT64", (-1,))}, {}, decoupled=False, max_batch_size=8)

    with pytest.raises(NotALeaf, match=r"it has no text_input, text_output\. Its inputs: input_ids"):
        await check_leaf(Encoder(), PROMPT)


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("grpc://leaf:9001", "leaf:9001"),
        ("grpc://leaf", "leaf:8001"),
        ("http://leaf", "leaf:8000"),
        ("https://a", "a:443"),
    ],
)
def test_an_address_has_its_protocols_port(target: str, address: str) -> None:
    assert wire_of(target).address == address


@pytest.mark.parametrize("target", ["leaf:8001", "ftp://leaf", "grpc://", "model_repository/nowhere"])
def test_another_target_is_told_what_it_must_look_like(target: str) -> None:
    with pytest.raises(ValueError, match="neither a folder nor grpc://HOST:PORT"):
        wire_of(target)


def test_a_path_behind_the_address_is_refused() -> None:
    with pytest.raises(ValueError, match="--model"):
        wire_of("http://leaf:8000/v2/models/tensorrt_llm")


SERVER = {"name": "triton", "extensions": ["model_configuration"]}
CONFIG = {
    "max_batch_size": 0,
    "model_transaction_policy": {"decoupled": True},
    "input": [{"name": "text_input", "data_type": "TYPE_STRING", "dims": ["-1"], "optional": False}],
    "output": [{"name": "text_output", "data_type": "TYPE_STRING", "dims": ["-1"]}],
}


def served(pages: Mapping[str, Any]) -> HttpLeaf:
    """A leaf behind a transport that knows these pages."""

    def answer(request: httpx.Request) -> httpx.Response:
        found = pages.get(request.url.path)
        if found is None:
            return httpx.Response(404, text="nothing here")
        return found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return HttpLeaf(wire_of("http://leaf:8000"), "tensorrt_llm", http=http)


async def test_over_http_the_declared_shape_is_read() -> None:
    async with served({"/v2": SERVER, "/v2/models/tensorrt_llm/config": CONFIG}) as leaf:
        shape = await leaf.shape()
    assert shape.inputs == {"text_input": TensorShape("BYTES", (-1,))}
    assert shape.decoupled
    assert shape.max_batch_size == 0


async def test_over_http_each_event_is_a_response_and_an_error_one_too() -> None:
    events = 'data: {"model_name":"m","text_output":"a"}\n\ndata: {"error":"Error generating request: no"}\n\n'
    stream = httpx.Response(200, text=events, headers={"content-type": "text/event-stream"})
    async with served({"/v2/models/tensorrt_llm/generate_stream": stream}) as leaf:
        seen = [response async for response in leaf.responses({"text_input": "hi"})]
    assert seen[0].outputs == {"text_output": "a"}
    assert seen[1].error == "Error generating request: no"


STRANGERS = {
    "a web page": ({"/v2": httpx.Response(200, text="<html>")}, "is no Triton: GET /v2 gave no JSON"),
    "another API": ({"/v2": {"detail": "not found"}}, "is no Triton: GET /v2 does not name its extensions"),
    "a list": ({"/v2": httpx.Response(200, json=[])}, "is no Triton: GET /v2 gave no JSON object"),
    "no such model": (
        {"/v2": SERVER, "/v2/models/tensorrt_llm/config": {"error": "unknown model."}},
        "does not serve tensorrt_llm: unknown model. Give --model",
    ),
}


@pytest.mark.parametrize(("pages", "why"), STRANGERS.values(), ids=STRANGERS)
async def test_a_server_of_another_kind_is_told_in_clear_words(pages: Mapping[str, Any], why: str) -> None:
    async with served(pages) as leaf:
        with pytest.raises(NotALeaf, match=why):
            await leaf.shape()


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_server_that_is_not_there_is_one_red_line(scheme: str) -> None:
    with reserved_port() as port:
        done = CliRunner().invoke(app, ["leaf", "check", f"{scheme}://127.0.0.1:{port}"])
    assert done.exit_code == 1
    assert isinstance(done.exception, NotALeaf)
    assert "cannot be reached" in str(done.exception)


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that nobody listens on, for as long as it is held."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_the_documentation_lists_every_probe_as_it_is() -> None:
    page = (Path(__file__).parents[3] / "docs" / "leaf.md").read_text()
    told = {probe.name: f"| `{probe.name}` | {probe.trap or ''} | {probe.sentence} |" for probe in PROBES}
    assert [name for name, row in told.items() if row not in page] == []


@pytest.fixture
def commanded(monkeypatch: pytest.MonkeyPatch):
    """The command line, with a fake leaf behind whichever address it is given."""

    def run(fault: str, *options: str):
        @asynccontextmanager
        async def opened(wire: Any, model: str, metrics: str | None) -> AsyncIterator[FakeLeaf]:
            yield FakeLeaf(fault)

        monkeypatch.setattr("zooserve.leaf.conformance.opened_endpoint", opened)
        return CliRunner().invoke(
            app, ["leaf", "check", "grpc://leaf", "--prompt", PROMPT, *options], env={"COLUMNS": "200"}
        )

    return run


def test_the_command_shows_each_probe_and_ends_well(commanded) -> None:
    done = commanded("")
    assert done.exit_code == 0
    assert all(probe.name in done.stdout for probe in PROBES)
    assert done.stdout.splitlines()[-1] == f"tensorrt_llm at fake://leaf: {len(PROBES)} of {len(PROBES)} probes pass"


def test_the_command_fails_with_one_probe_and_says_why(commanded) -> None:
    done = commanded("real numbers")
    assert done.exit_code == 1
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("text-scalars")]
    assert "fail" in row
    assert done.stdout.splitlines()[-1].endswith("probes pass, 1 fail")


def test_json_has_the_same_for_a_script(commanded) -> None:
    done = commanded("real numbers", "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["passes"]) == (1, False)
    assert [result["probe"] for result in told["results"] if result["outcome"] == "fail"] == ["text-scalars"]
