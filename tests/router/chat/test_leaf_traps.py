"""The ten traps of the llmapi contract, each by the name that docs and facts give it, as the adapter meets them.

What a real server does with them is the conformance suite's to show.
"""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from tritonclient.grpc import InferResult
from tritonclient.grpc.service_pb2 import ModelInferResponse
from tritonclient.utils import InferenceServerException

from zooserve.errors import BackendFailed, BackendUnavailable, Unsupported
from zooserve.leaf.contract import CANCELLED, INPUTS, NOT_AVAILABLE
from zooserve_router.backends.leaf import Leaf, inputs_of, report_of, timings_of, translated_errors
from zooserve_router.chat.generation import Constraint, EngineReport, Generation, Piece, Sampling, Timings

TIMES = {
    "arrival_time_ns": "8000000000",
    "first_scheduled_time_ns": "8500000000",
    "first_token_time_ns": "9500000000",
    "last_token_time_ns": "11000000000",
}
CACHE = {"kv_cache_reused_block": "3", "kv_cache_missed_block": "1", "kv_cache_hit_rate": "0.75"}


def said(text: str, finish_reason: str = "None", **outputs: str) -> InferResult:
    """A response as it comes over the wire, every value as text."""
    message = ModelInferResponse()
    for name, value in {"text_output": text, "finish_reason": finish_reason, **outputs}.items():
        message.outputs.add(name=name, datatype="BYTES", shape=[1])
        raw = value.encode()
        message.raw_output_contents.append(len(raw).to_bytes(4, "little") + raw)
    return InferResult(message)


class Recorded:
    """A leaf's client that answers with what was recorded, and remembers what it was asked."""

    def __init__(self, *responses: InferResult | InferenceServerException) -> None:
        self.responses = responses
        self.asked: list[dict[str, Any]] = []
        self.cancelled = False

    def stream_infer(self, requests: AsyncIterator[dict[str, Any]], stream_timeout: float) -> "Recorded":
        self._requests = requests
        return self

    async def __aiter__(self) -> AsyncIterator[tuple[InferResult | None, InferenceServerException | None]]:
        self.asked = [request async for request in self._requests]
        for response in self.responses:
            yield (None, response) if isinstance(response, InferenceServerException) else (response, None)

    def cancel(self) -> None:
        self.cancelled = True


async def pieces_of(*responses: InferResult | InferenceServerException, generation: Generation | None = None):
    """The adapter's pieces of these responses, and the client that gave them."""
    leaf = Leaf("127.0.0.1:1", "tensorrt_llm")
    await leaf._stream._client.close()
    leaf._stream._client = client = Recorded(*responses)
    pieces = [piece async for piece in leaf.generate(generation or Generation("Hi"), 5)]
    return pieces, client


async def test_trap_1_streamed_text_is_cumulative_and_only_what_is_new_goes_on() -> None:
    pieces, client = await pieces_of(said("One"), said("One, two"), said("One, two"), said("One, two.", "stop"))
    assert [piece.text for piece in pieces] == ["One", ", two", "."]
    assert client.cancelled


async def test_trap_1_text_that_becomes_shorter_at_its_end_takes_nothing_back() -> None:
    pieces, _ = await pieces_of(said("One, tw"), said("One", "stop"))
    assert [(piece.text, piece.finish_reason) for piece in pieces] == [("One, tw", None), ("", "stop")]


async def test_trap_2_scalars_are_texts_and_none_is_the_word_none() -> None:
    pieces, _ = await pieces_of(said("Hi", "length", stop_reason="None", **TIMES, **CACHE))
    assert pieces == [
        Piece(
            "Hi",
            "length",
            Timings(queue_s=0.5, prefill_s=1.0, decode_s=1.5),
            report=EngineReport(reused_blocks=3, missed_blocks=1),
        )
    ]


@pytest.mark.parametrize("figure", ["None", "", "nan", "inf", "N/A", "True"])
async def test_trap_2_a_figure_that_is_no_number_is_left_out_and_costs_no_answer(figure) -> None:
    figures = {**TIMES, **CACHE, "last_token_time_ns": figure, "kv_cache_reused_block": figure}
    pieces, _ = await pieces_of(said("Hi", "stop", **figures))
    assert pieces == [Piece("Hi", "stop")]


def test_trap_2_draft_figures_count_where_there_were_drafts() -> None:
    drafts = {"total_draft_tokens": "40", "total_accepted_draft_tokens": "30", "acceptance_rate": "0.75"}
    assert report_of(said("", **CACHE, **drafts)) == EngineReport(3, 1, 40, 30, 0.75)
    none = {"total_draft_tokens": "0", "total_accepted_draft_tokens": "0", "acceptance_rate": "0.0"}
    assert report_of(said("", **CACHE, **none)) == EngineReport(3, 1)


@pytest.mark.parametrize(
    ("generation", "param"),
    [
        (Generation("Hi", Sampling(logprobs=2)), "logprobs"),
        (Generation("Hi", Sampling(logit_bias={5: 1.0})), "logit_bias"),
        (Generation("Hi", constraint=Constraint()), "response_format"),
    ],
    ids=["logprobs", "logit_bias", "response_format"],
)
async def test_trap_3_what_the_contract_lacks_is_refused_and_never_dropped(generation, param) -> None:
    with pytest.raises(Unsupported) as refused:
        await pieces_of(said("Hi", "stop"), generation=generation)
    assert refused.value.param == param


async def test_trap_4_a_cancelled_answers_placeholder_is_no_text() -> None:
    with pytest.raises(BackendFailed, match=CANCELLED):
        await pieces_of(said("One"), InferenceServerException(CANCELLED))
    with pytest.raises(BackendFailed, match="ended the answer early: cancelled"):
        await pieces_of(said(NOT_AVAILABLE, "cancelled"))


def test_trap_5_of_a_steady_clock_only_differences_are_used() -> None:
    later = {name: str(int(moment) + 10**15) for name, moment in TIMES.items()}
    assert timings_of(said("", **TIMES)) == timings_of(said("", **later)) == Timings(0.5, 1.0, 1.5)


@pytest.mark.parametrize("name", ["first_token_time_ns", "first_scheduled_time_ns"])
def test_trap_5_a_moment_that_never_came_makes_no_negative_phase(name) -> None:
    assert timings_of(said("", **{**TIMES, name: "0"})) is None


async def test_trap_6_one_prompt_a_request_since_others_would_be_dropped() -> None:
    _, client = await pieces_of(said("Hi", "stop"))
    (request,) = client.asked
    prompts = [tensor.shape() for tensor in request["inputs"] if tensor.name() == "text_input"]
    assert prompts == [[1]]


@pytest.mark.parametrize(
    "message",
    [
        "Error generating request: LoRA adapter not found",
        "Error generating request: model 'unknown model' is unavailable",
        "Error generating request: top_p must be between 0 and 1, and is 7",
    ],
)
def test_trap_7_every_failure_is_a_500_and_a_refused_request_is_no_reason_to_doubt_the_model(message) -> None:
    with pytest.raises(BackendFailed), translated_errors("tensorrt_llm", "here:1"):
        raise InferenceServerException(message)


def test_trap_7_a_server_that_is_not_there_is_told_from_one_that_refuses() -> None:
    with pytest.raises(BackendUnavailable), translated_errors("tensorrt_llm", "here:1"):
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "refused")


async def test_trap_8_request_ids_are_ours_unique_and_unguessable_and_stop_is_never_sent() -> None:
    ids = []
    for _ in range(3):
        _, client = await pieces_of(said("Hi", "stop"))
        ids += [request["request_id"] for request in client.asked]
        assert "stop" not in [tensor.name() for tensor in client.asked[0]["inputs"]]
    assert len(set(ids)) == 3
    assert all(len(bytes.fromhex(each)) == 16 for each in ids)


def test_trap_9_no_path_or_address_of_the_callers_choosing_is_ever_an_input() -> None:
    names = {tensor.name() for tensor in inputs_of(Generation("Hi", Sampling(5, stop=("a",))))}
    assert not names & {"lora_path", "lora_name", "lora_id", "lora_ckpt_source", "image_url"}


def test_trap_10_the_names_are_the_contracts_and_not_those_of_tritons_own_openai_frontend() -> None:
    names = {tensor.name() for tensor in inputs_of(Generation("Hi", Sampling(5, stop=("a",))))}
    assert names <= set(INPUTS)
    assert not names & {"max_tokens", "stop_words", "stream", "temperature"}
