"""The llmapi adapter: what it sends, how it reads growing text, and what it makes of the server's errors."""

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import InferResult
from tritonclient.grpc.service_pb2 import ModelInferResponse
from tritonclient.utils import InferenceServerException, deserialize_bytes_tensor, serialize_byte_tensor

from zooserve.catalogue import Adapter
from zooserve.errors import BackendFailed, BackendUnavailable, DeadlineExceeded, Overloaded, Unsupported
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


LORA = {"lora_id", "lora_name", "lora_path", "lora_ckpt_source"}
ADAPTERS = {"support": Adapter(id=7, path="/adapters/support"), "legal": Adapter(id=9, path="/l", source="nemo")}


def test_an_adapter_is_sent_as_the_catalogue_declares_it() -> None:
    sent = {tensor.name(): tensor for tensor in inputs_of(Generation("Hi", lora="legal"), ADAPTERS)}
    assert sent["lora_id"].datatype() == "UINT64"
    told = {name: deserialize_bytes_tensor(sent[name]._raw_content)[0] for name in LORA if name != "lora_id"}
    assert told == {"lora_name": b"legal", "lora_path": b"/l", "lora_ckpt_source": b"nemo"}
    assert int.from_bytes(sent["lora_id"]._raw_content, "little") == 9


def test_without_an_adapter_nothing_of_adapters_is_sent_however_many_are_declared() -> None:
    assert not LORA & {tensor.name() for tensor in inputs_of(Generation("Hi"), ADAPTERS)}


@pytest.mark.parametrize("name", ["../../etc", "/adapters/support", "Support", ""])
def test_an_adapter_that_the_catalogue_does_not_declare_is_never_sent(name: str) -> None:
    with pytest.raises(Unsupported, match="declares no adapter"):
        inputs_of(Generation("Hi", lora=name), ADAPTERS)


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
