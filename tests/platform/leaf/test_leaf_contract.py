"""The contract as data against the committed configuration, and requests read from tensors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from zooserve.errors import BadInput, MissingPart, Unsupported
from zooserve.leaf import contract
from zooserve.leaf.call import answer, is_stop, read_call
from zooserve.leaf.job import Failed, Finished, Job
from zooserve.leaf.llama import load_engine_settings

MODEL = Path(__file__).parents[3] / "model_repository" / "leaf" / "tensorrt_llm"


def config() -> Any:
    return text_format.Parse((MODEL / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def shape_of(tensor: Any) -> tuple[str, str, tuple[int, ...], bool]:
    return (
        tensor.name,
        model_config_pb2.DataType.Name(tensor.data_type),
        tuple(tensor.dims),
        getattr(tensor, "optional", False),
    )


def declared(tensors: Any) -> set[tuple[str, str, tuple[int, ...], bool]]:
    return {(tensor.name, tensor.config_type, tensor.dims, tensor.optional) for tensor in tensors.values()}


def test_the_configuration_has_exactly_the_contracts_tensors() -> None:
    assert {shape_of(tensor) for tensor in config().input} == declared(contract.INPUTS)
    assert {shape_of(tensor) for tensor in config().output} == declared(contract.OUTPUTS)


def test_the_model_is_decoupled_and_batches_by_itself() -> None:
    assert (config().name, config().backend, config().max_batch_size) == (contract.MODEL_NAME, "python", 0)
    assert config().model_transaction_policy.decoupled


@pytest.mark.parametrize(("text", "number"), [(b"None", None), ("3", 3.0), (b"-1.25", -1.25)])
def test_numbers_are_read_back_from_text(text: bytes | str, number: float | None) -> None:
    assert contract.parse_number(text) == number


def texts(*values: str) -> Any:
    return np.array([value.encode() for value in values], dtype=np.object_)


def test_only_the_first_text_is_used() -> None:
    assert read_call({"text_input": texts("first", "second")}).prompt == "first"


def test_a_plain_request_has_tensorrt_llms_defaults() -> None:
    call = read_call({"text_input": texts("hi")})

    assert (call.streaming, call.echo, call.perf_metrics, call.sampling.max_tokens) == (False, True, False, 32)
    assert call.sampling.greedy


def test_parameters_reach_the_sampling() -> None:
    call = read_call(
        {
            "text_input": texts("hi"),
            "sampling_param_temperature": np.array([0.5], np.float32),
            "sampling_param_max_tokens": np.array([7], np.int32),
            "sampling_param_seed": np.array([2**63], np.uint64),
            "sampling_param_stop": texts("a", "b"),
        }
    )

    assert (call.sampling.temperature, call.sampling.max_tokens, call.sampling.seed) == (0.5, 7, 2**63)
    assert call.sampling.stop == ("a", "b")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "text_input is missing"),
        ({"text_input": texts()}, "text_input is missing"),
        ({"text_input": texts("a").reshape(1, 1)}, "one dimension"),
        ({"text_input": np.array([b"\xff"], np.object_)}, "text_input is not UTF-8"),
        ({"text_input": texts("a"), "streaming": np.array([True, False])}, "scalar tensor for tensor streaming"),
    ],
    ids=str,
)
def test_a_malformed_request_is_bad_input(tensors: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_call(tensors)


@pytest.mark.parametrize("name", ["image_url", "lora_path", "lora_name"])
def test_what_this_engine_cannot_do_is_refused(name: str) -> None:
    with pytest.raises(Unsupported, match=name):
        read_call({"text_input": texts("a"), name: texts("x")})


def test_a_stop_request_is_told_by_its_flag() -> None:
    assert is_stop({"text_input": texts(""), "stop": np.array([True])})
    assert not is_stop({"text_input": texts(""), "stop": np.array([False])})


class Nobody:
    def progressed(self, job: Job) -> None: ...

    def ended(self, job: Job) -> None: ...

    def left(self) -> bool:
        return False


def job(**state: Any) -> Job:
    made = Job("the prompt ", read_call({"text_input": texts("x")}).sampling, Nobody(), arrival_ns=1)
    for name, value in state.items():
        setattr(made, name, value)
    return made


def asked(**flags: bool) -> Any:
    return read_call({"text_input": texts("the prompt ")} | {name: np.array([value]) for name, value in flags.items()})


def test_the_prompt_is_echoed_unless_told_otherwise() -> None:
    done = job(text="answer", outcome=Finished("stop"))

    assert answer(asked(), done, 32) == {"text_output": "the prompt answer"}
    assert answer(asked(sampling_param_exclude_input_from_output=True), done, 32) == {"text_output": "answer"}


def test_reasons_are_text_even_where_there_is_none() -> None:
    wants = asked(return_finish_reason=True, return_stop_reason=True)

    assert answer(wants, job(), 32)["finish_reason"] == "None"
    assert answer(wants, job(outcome=Finished("stop", "END")), 32)["stop_reason"] == "END"


def test_kv_figures_are_counted_in_blocks() -> None:
    done = job(outcome=Finished("length"), prompt_tokens=70, cached_tokens=64, generated_tokens=30)

    outputs = answer(asked(sampling_param_return_perf_metrics=True), done, 32)

    assert set(contract.PERF_OUTPUTS) == set(outputs) - {"text_output"}
    assert [outputs[f"kv_cache_{name}"] for name in ("reused_block", "missed_block", "alloc_new_blocks")] == [
        "2",
        "1",
        "2",
    ]
    assert outputs["kv_cache_alloc_total_blocks"] == "4"


def test_perf_figures_come_only_with_a_finished_answer() -> None:
    wants = asked(sampling_param_return_perf_metrics=True)

    assert "arrival_time_ns" not in answer(wants, job(), 32)
    assert "arrival_time_ns" not in answer(wants, job(outcome=Failed("x")), 32)


def test_missing_weights_are_named_with_the_way_to_get_them(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text("model: model.gguf\n")

    with pytest.raises(MissingPart, match="zooserve fetch"):
        load_engine_settings(tmp_path / "model.yaml")


def test_an_unknown_knob_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text("model: model.gguf\nslotz: 3\n")

    with pytest.raises(ValueError, match="slotz"):
        load_engine_settings(tmp_path / "model.yaml")


def test_the_committed_knobs_are_the_engines_own_defaults() -> None:
    from ruamel.yaml import YAML

    from zooserve.leaf.llama import EngineSettings

    committed = EngineSettings.model_validate(YAML(typ="safe").load((MODEL / "1" / "model.yaml").read_text()))

    assert committed == EngineSettings(model=Path("model.gguf"))
