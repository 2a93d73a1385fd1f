"""The adapter of TensorRT-LLM's engine path: what it sends, against the recorded contract, and how answers end."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2

from zooserve.errors import BackendFailed, BackendUnavailable, Unsupported
from zooserve_router.backends.engine_path import EnginePath, Front, inputs_of
from zooserve_router.chat.generation import Constraint, Generation, Piece, Sampling, Timings, Usage

EVERYTHING = Generation(
    "Hi",
    Sampling(7, temperature=0.5, top_p=0.9, stop=("END", "STOP"), seed=3, frequency_penalty=0.5, presence_penalty=1.0),
    constraint=Constraint({"type": "object"}),
)
TYPES = {
    "TYPE_STRING": "BYTES",
    "TYPE_BOOL": "BOOL",
    "TYPE_INT32": "INT32",
    "TYPE_UINT64": "UINT64",
    "TYPE_FP32": "FP32",
}


@pytest.fixture
def configured(recorded: Callable[[str], Any]) -> Callable[..., Any]:
    """The configuration of a front, with what the test changes."""

    def made(accumulates: str = "", without: tuple[str, ...] = ()) -> Any:
        config = model_config_pb2.ModelConfig(name="tensorrt_llm_bls")
        for name in recorded("engine_path")["inputs"]:
            if name not in without:
                config.input.add(name=name)
        if accumulates:
            config.parameters["accumulate_tokens"].string_value = accumulates
        return config

    return made


def sent(generation: Generation, front: Front) -> dict[str, Any]:
    return {tensor.name(): tensor for tensor in inputs_of(generation, front)}


def test_only_recorded_inputs_are_sent_with_their_types_and_a_batch_of_one(recorded: Any, configured: Any) -> None:
    declared = recorded("engine_path")["inputs"]
    tensors = sent(EVERYTHING, Front.read(configured()))
    for name, tensor in tensors.items():
        assert tensor.datatype() == TYPES[declared[name]["type"]]
        assert len(tensor.shape()) == 1 + len(declared[name]["dims"])
        assert tensor.shape()[0] == 1
    assert tensors["stop_words"].shape() == [1, 2]
    assert {"guided_decoding_guide_type", "guided_decoding_guide"} <= set(tensors)


def test_no_weights_and_no_images_are_ever_sent(configured: Any) -> None:
    names = set(sent(EVERYTHING, Front.read(configured())))
    assert not any(name.startswith(("lora", "image", "video", "prompt_")) for name in names)


def test_a_front_of_an_older_release_is_not_sent_what_it_lacks(configured: Any) -> None:
    front = Front.read(configured(without=("exclude_input_in_output", "return_perf_metrics")))
    assert not {"exclude_input_in_output", "return_perf_metrics"} & set(sent(EVERYTHING, front))


def test_a_front_that_counts_no_tokens_is_refused_with_what_to_do(configured: Any) -> None:
    with pytest.raises(BackendFailed, match=r"return_num_output_tokens.*Take the fronts"):
        Front.read(configured(without=("return_num_output_tokens",)))


@pytest.mark.parametrize(("temperature", "top_p", "top_k"), [(0.0, 1.0, 1), (1.0, 0.0, 1), (0.7, 0.9, 0)])
def test_greedy_is_one_candidate_and_chance_is_all_of_them(
    configured: Any, temperature: float, top_p: float, top_k: int
) -> None:
    tensors = sent(Generation("Hi", Sampling(temperature=temperature, top_p=top_p)), Front.read(configured()))
    assert int.from_bytes(tensors["top_k"]._raw_content, "little") == top_k
    assert ("temperature" in tensors) is (top_k == 0)


@pytest.mark.parametrize(
    ("work", "param"),
    [
        (Generation("Hi", Sampling(logprobs=1)), "logprobs"),
        (Generation("Hi", Sampling(logit_bias={1: 1.0})), "logit_bias"),
        (Generation("Hi", lora="pirate"), "model"),
    ],
)
def test_what_the_contract_lacks_is_refused_by_name(configured: Any, work: Generation, param: str) -> None:
    with pytest.raises(Unsupported) as refused:
        inputs_of(work, Front.read(configured()))
    assert refused.value.param == param


def opened(monkeypatch: pytest.MonkeyPatch, configuration: Any, script: list[Any]) -> EnginePath:
    """An adapter whose transport says the script."""
    backend = EnginePath("127.0.0.1:1", "tensorrt_llm_bls")

    async def responses(inputs: Any, timeout_s: float) -> Any:
        for each in script:
            yield each

    async def read(timeout_s: float) -> Any:
        return configuration

    monkeypatch.setattr(backend._stream, "responses", responses)
    monkeypatch.setattr(backend._stream, "configuration", read)
    return backend


def part(text: str, tokens: int = 1) -> dict[str, Any]:
    return {"text_output": text, "num_input_tokens": 9, "num_output_tokens": tokens}


@pytest.mark.parametrize(("granted", "reason"), [(3, "length"), (4, "stop")])
async def test_an_answer_that_used_its_whole_grant_ended_by_length(
    responses: Any, configured: Any, monkeypatch: pytest.MonkeyPatch, granted: int, reason: str
) -> None:
    script = responses("engine_path", part("He"), part("llo", 2))
    backend = opened(monkeypatch, configured(), script)
    pieces = [piece async for piece in backend.generate(Generation("Hi", Sampling(granted)), 5)]
    assert pieces == [Piece("He"), Piece("llo"), Piece("", reason, usage=Usage(9, 3))]


async def test_text_that_a_front_accumulates_comes_out_once_and_whole(
    responses: Any, configured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = responses("engine_path", part("caf\ufffd"), part("café"), part("café \ufffd"))
    backend = opened(monkeypatch, configured(accumulates="true"), script)
    pieces = [piece async for piece in backend.generate(Generation("Hi", Sampling(9)), 5)]
    assert [piece.text for piece in pieces] == ["caf", "é", " ", "\ufffd"]


async def test_the_last_responses_times_become_phases(
    responses: Any, configured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"arrival_time_ns": 10**9, "first_scheduled_time_ns": 2 * 10**9}
    times |= {"first_token_time_ns": 4 * 10**9, "last_token_time_ns": 8 * 10**9}
    backend = opened(monkeypatch, configured(), responses("engine_path", part("Hi") | times))
    pieces = [piece async for piece in backend.generate(Generation("Hi", Sampling(9)), 5)]
    assert pieces[-1].timings == Timings(queue_s=1.0, prefill_s=2.0, decode_s=4.0)


async def test_an_answer_that_never_began_is_a_failure(configured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendFailed, match="before it began"):
        await anext(opened(monkeypatch, configured(), []).generate(Generation("Hi"), 5))


async def test_who_comes_back_is_asked_for_its_configuration_again(
    responses: Any, configured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = opened(monkeypatch, configured(), responses("engine_path", part("Hi")))
    asked = SimpleNamespace(times=0, down=True)

    async def read(timeout_s: float) -> Any:
        asked.times += 1
        if asked.down:
            raise BackendUnavailable("down")
        return configured()

    monkeypatch.setattr(backend._stream, "configuration", read)
    with pytest.raises(BackendUnavailable):
        await anext(backend.generate(Generation("Hi"), 5))
    asked.down = False
    for _ in range(2):
        assert [piece.text async for piece in backend.generate(Generation("Hi"), 5)] == ["Hi", ""]
    assert asked.times == 2


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    backend = EnginePath("127.0.0.1:1", "tensorrt_llm_bls")
    with pytest.raises(BackendUnavailable, match=r"127\.0\.0\.1:1"):
        await anext(backend.generate(Generation("Hi"), 5))
    await backend.close()
