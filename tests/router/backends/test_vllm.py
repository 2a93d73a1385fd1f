"""The adapter of Triton's vLLM backend: what it sends, against the recorded contract, and how it reads answers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from zooserve.errors import BackendFailed, BackendUnavailable, Unsupported
from zooserve_router.backends.vllm import Vllm, inputs_of, sampling_parameters
from zooserve_router.chat.generation import (
    Constraint,
    Conversation,
    Generation,
    Piece,
    Sampling,
    TokenLogprob,
    Usage,
)

MODEL = Path(__file__).parents[3] / "model_repository" / "vllm" / "vllm_model"
EVERYTHING = Generation(
    "Hi",
    Sampling(7, temperature=0.5, top_p=0.9, stop=("END",), seed=3, logprobs=2, presence_penalty=1.0),
    lora="pirate",
    constraint=Constraint({"type": "object"}),
)


def test_only_recorded_inputs_are_sent_with_their_types_and_shapes(recorded: Callable[[str], Any]) -> None:
    declared = recorded("vllm_backend")["inputs"]
    for tensor in inputs_of(EVERYTHING):
        expected = declared[tensor.name()]
        assert tensor.datatype() == {"TYPE_STRING": "BYTES", "TYPE_BOOL": "BOOL"}[expected["type"]]
        assert tensor.shape() == expected["dims"] == [1]


def test_neither_an_image_nor_an_embedding_request_is_ever_sent() -> None:
    assert not {"image", "embedding_request"} & {tensor.name() for tensor in inputs_of(EVERYTHING)}


def test_only_parameters_that_vllm_has_are_said(recorded: Callable[[str], Any]) -> None:
    said = sampling_parameters(EVERYTHING)
    assert set(said) <= set(recorded("vllm_backend")["sampling_parameters"])
    assert json.loads(said["structured_outputs"]) == {"json": {"type": "object"}}
    assert said["lora_name"] == "pirate"
    assert (said["max_tokens"], said["seed"], said["logprobs"], said["stop"]) == (7, 3, 2, ["END"])


def test_any_json_object_is_asked_for_by_the_grammar_for_it(recorded: Callable[[str], Any]) -> None:
    structure = json.loads(sampling_parameters(Generation("Hi", constraint=Constraint()))["structured_outputs"])
    assert structure == {"json_object": True}
    assert set(structure) <= set(recorded("vllm_backend")["structured_outputs"])


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0, top_p=0.5), Sampling(temperature=1.0, top_p=0.0)])
def test_greedy_is_said_without_a_top_p_of_nothing(sampling: Sampling) -> None:
    said = sampling_parameters(Generation("Hi", sampling))
    assert said["temperature"] == 0.0
    assert "top_p" not in said


def test_a_logit_bias_is_refused_because_its_ids_would_arrive_as_texts() -> None:
    with pytest.raises(Unsupported, match="logit_bias"):
        sampling_parameters(Generation("Hi", Sampling(logit_bias={5: 1.0})))


def opened(monkeypatch: pytest.MonkeyPatch, script: list[Any]) -> Vllm:
    """An adapter whose transport says the script."""
    backend = Vllm("127.0.0.1:1", "vllm_model")

    async def responses(inputs: Any, timeout_s: float) -> Any:
        for each in script:
            yield each

    monkeypatch.setattr(backend._stream, "responses", responses)
    return backend


async def test_parts_are_passed_on_and_counts_added_up(responses: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script = responses(
        "vllm_backend",
        {"text_output": "He", "finish_reason": "None", "num_input_tokens": 9, "num_output_tokens": 1},
        {"text_output": "", "finish_reason": "None", "num_input_tokens": 9, "num_output_tokens": 1},
        {"text_output": "llo", "finish_reason": "length", "num_input_tokens": 9, "num_output_tokens": 2},
    )
    pieces = [piece async for piece in opened(monkeypatch, script).generate(Generation("Hi"), 5)]
    assert pieces == [Piece("He"), Piece("llo", "length", usage=Usage(9, 4))]


async def test_log_probabilities_name_the_chosen_token_first_and_the_likeliest_after(
    responses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = {
        "17": {"logprob": -2.5, "rank": 9, "decoded_token": " cat"},
        "4": {"logprob": -0.5, "rank": 1, "decoded_token": " dog"},
        "5": {"logprob": float("-inf"), "rank": 2, "decoded_token": None},
    }
    script = responses(
        "vllm_backend",
        {"text_output": " cat", "finish_reason": "stop", "num_output_tokens": 1, "logprobs": json.dumps([position])},
    )
    work = Generation("Hi", Sampling(logprobs=2))
    (piece,) = [piece async for piece in opened(monkeypatch, script).generate(work, 5)]
    assert piece.logprobs == (TokenLogprob(" cat", -2.5, ((" dog", -0.5), ("", -9999.0))),)


@pytest.mark.parametrize(
    ("script", "message"),
    [([{"text_output": "x", "finish_reason": "abort"}], "abort"), ([{"text_output": "x"}], "without saying why")],
)
async def test_an_answer_without_a_proper_end_is_a_failure(
    responses: Any, monkeypatch: pytest.MonkeyPatch, script: list[Any], message: str
) -> None:
    backend = opened(monkeypatch, responses("vllm_backend", *script))
    with pytest.raises(BackendFailed, match=message):
        [piece async for piece in backend.generate(Generation("Hi"), 5)]


async def test_messages_are_refused() -> None:
    backend = Vllm("127.0.0.1:1", "vllm_model")
    with pytest.raises(Unsupported):
        await anext(backend.generate(Conversation([]), 5))
    await backend.close()


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    backend = Vllm("127.0.0.1:1", "vllm_model")
    with pytest.raises(BackendUnavailable, match=r"127\.0\.0\.1:1"):
        await anext(backend.generate(Generation("Hi"), 5))
    await backend.close()


def configuration() -> Any:
    return text_format.Parse((MODEL / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def test_the_model_directory_leaves_tensors_and_devices_to_the_backend(recorded: Callable[[str], Any]) -> None:
    config, contract = configuration(), recorded("vllm_backend")
    assert (config.name, config.backend, config.max_batch_size) == (MODEL.name, "vllm", contract["max_batch_size"])
    assert config.model_transaction_policy.decoupled is contract["decoupled"]
    assert [group.kind for group in config.instance_group] == [model_config_pb2.ModelInstanceGroup.KIND_MODEL]
    assert not config.input
    assert not config.output
    assert set(config.parameters) <= set(contract["configuration_parameters"])


def test_every_engine_argument_is_one_that_vllm_has(recorded: Callable[[str], Any]) -> None:
    arguments = json.loads((MODEL / "1" / "model.json").read_text())
    assert set(arguments) <= set(recorded("vllm_backend")["engine_arguments"])
    assert {"model", "gpu_memory_utilization", "tensor_parallel_size", "enable_prefix_caching"} <= set(arguments)


def test_metrics_are_reported_where_the_engine_keeps_them() -> None:
    arguments = json.loads((MODEL / "1" / "model.json").read_text())
    assert configuration().parameters["REPORT_CUSTOM_METRICS"].string_value == "true"
    assert arguments["disable_log_stats"] is False
