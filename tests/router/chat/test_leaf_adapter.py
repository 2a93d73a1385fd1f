"""The llmapi adapter: what it sends, how it reads growing text, and what it makes of the server's errors."""

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import InferResult
from tritonclient.grpc.service_pb2 import ModelInferResponse
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, Overloaded
from zooserve.leaf.contract import INPUTS
from zooserve_router.backends.leaf import Leaf, UnsentText, inputs_of, timings_of, translated_errors
from zooserve_router.chat.generation import Generation, Sampling, Timings


def test_only_named_inputs_are_sent_with_the_contracts_types() -> None:
    tensors = inputs_of(Generation("Hi", Sampling(5, stop=("a", "b"), seed=2**63 - 1)))
    sent = {tensor.name(): tensor for tensor in tensors}
    assert all(tensor.datatype() == INPUTS[name].datatype for name, tensor in sent.items())
    assert sent["sampling_param_stop"].shape() == [2]
    assert not {"lora_path", "lora_id", "stop", "image_url", "sampling_param_best_of"} & set(sent)
    assert "sampling_param_exclude_input_from_output" in sent


def test_without_stop_strings_no_stop_is_sent() -> None:
    assert "sampling_param_stop" not in [tensor.name() for tensor in inputs_of(Generation("Hi", Sampling(5)))]


@given(st.text(), st.data())
def test_growing_text_comes_out_whole_and_without_broken_characters(text: str, data: st.DataObject) -> None:
    whole = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    unsent = UnsentText()
    parts = [unsent.advance(whole[:cut], is_last=False) for cut in cuts]
    parts.append(unsent.advance(whole, is_last=True))
    assert "".join(parts) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in part for part in parts)


def test_a_replacement_character_waits_for_the_rest_of_its_tokens() -> None:
    unsent = UnsentText()
    assert unsent.advance("caf\ufffd".encode(), is_last=False) == "caf"
    assert unsent.advance("café".encode(), is_last=False) == "é"


def result(**outputs: str) -> InferResult:
    message = ModelInferResponse()
    for name, text in outputs.items():
        message.outputs.add(name=name, datatype="BYTES", shape=[1])
        message.raw_output_contents.append(serialize_byte_tensor(np.array([text.encode()], dtype=np.object_)).item())
    return InferResult(message)


def test_timings_are_read_from_text_and_missing_ones_are_none() -> None:
    names = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
    times = dict(zip(names, ["0", "1000000000", "3000000000", "6000000000"], strict=True))
    timings = timings_of(result(**times))
    assert timings == Timings(queue_s=1.0, prefill_s=2.0, decode_s=3.0)
    assert timings_of(result(**{**times, "arrival_time_ns": "None"})) is None
    assert timings_of(result()) is None


MESSAGES = {
    "Exceeds maximum queue size": Overloaded,
    "Error generating request: 256 requests already wait for one of 16 slots": Overloaded,
    "Request timeout expired": DeadlineExceeded,
    "Request for unknown model: 'tensorrt_llm' is not found": BackendUnavailable,
    "Stub process 'tensorrt_llm_0_0' is not healthy.": BackendUnavailable,
    "Error generating request: the leaf is shutting down": BackendUnavailable,
    "Error generating request: something else": BackendFailed,
}


@pytest.mark.parametrize(("message", "expected"), MESSAGES.items(), ids=MESSAGES.keys())
def test_tritons_words_become_our_errors(message, expected) -> None:
    with pytest.raises(expected), translated_errors("tensorrt_llm", "here:1"):
        raise InferenceServerException(message)


CODES = {
    grpc.StatusCode.UNAVAILABLE: BackendUnavailable,
    grpc.StatusCode.CANCELLED: BackendUnavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.INTERNAL: BackendFailed,
}


@pytest.mark.parametrize(("code", "expected"), CODES.items(), ids=[code.name for code in CODES])
def test_grpc_codes_become_our_errors(code, expected) -> None:
    with pytest.raises(expected), translated_errors("tensorrt_llm", "here:1"):
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "why")


async def test_a_leaf_that_is_not_there_is_unavailable() -> None:
    leaf = Leaf("127.0.0.1:1", "tensorrt_llm")
    with pytest.raises(BackendUnavailable, match=r"127\.0\.0\.1:1"):
        async for _ in leaf.generate(Generation("Hi"), timeout_s=5):
            pass
    await leaf.close()
