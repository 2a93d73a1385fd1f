"""Which stage failed: by text, by configuration, by trace."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from zooserve_observability.spans import Span
from zooserve_router.failures import failure_of, is_handed_on_wrongly, missing_output, suspicion_by_trace
from zooserve_router.stages import Ensemble, Stage, Step, load_ensembles

ZOO = Path(__file__).parents[2] / "model_repository" / "zoo"

TOKENIZER = Step(Stage("tokenizer", "1"), {"text": "text"}, {"ids": "ids"}, bounded=True)
ENCODER = Step(Stage("encoder", "2"), {"x": "ids"}, {"vector": "vector"})
HEAD = Step(Stage("head", "3"), {"vector": "vector"}, {"score": "score"})
LANGUAGE = Step(Stage("language", "4"), {"x": "ids"}, {"language": "language"})
LINE = Ensemble("line", (TOKENIZER, ENCODER, HEAD))
FAN = Ensemble("fan", (TOKENIZER, ENCODER, HEAD, LANGUAGE))
ID = "[request id: req_1] "

TEXTS = [
    ("in ensemble 'line', encoder version 2: out of memory", "error", "encoder"),
    (f"in ensemble 'line', {ID}Exceeds maximum queue size", "queue_full", "tokenizer"),
    ("in ensemble 'line', Stub process 'head_0_0' is not healthy.", "stub_dead", "head"),
    (
        "in ensemble 'line', Failed to process the request(s) for model 'encoder_0_0', message: RuntimeError: boom",
        "exception",
        "encoder",
    ),
    # Triton names who could not take it; at fault is who made it.
    (
        f"in ensemble 'line', {ID}unexpected shape for input 'x' for model 'encoder'. Expected [-1,1], got [1,7].",
        "bad_tensor",
        "tokenizer",
    ),
    (
        f"in ensemble 'line', {ID}expected 1 inputs but got 0 inputs for model 'head'. Got input(s) [], but missing "
        "required input(s) ['vector']. Please provide all required input(s).",
        "bad_tensor",
        "encoder",
    ),
    (
        f"in ensemble 'line', {ID}inference input 'x' data-type is 'INT64', but model 'encoder' expects 'FP32'",
        "bad_tensor",
        "tokenizer",
    ),
]


@pytest.mark.parametrize(("text", "reason", "stage"), TEXTS)
def test_a_text_that_tells_is_believed(text: str, reason: str, stage: str) -> None:
    failure = failure_of(LINE, text)
    assert failure.stage is not None
    assert (failure.reason, failure.stage.model) == (reason, stage)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("in ensemble 'line', Request timeout expired", "queue_timeout"),
        ("in ensemble 'line', onnx runtime error 2: not enough space", "error"),
        ("Request for unknown model: 'line' has no available versions", "unavailable"),
        ("in ensemble 'line', stranger version 1: no such stage here", "error"),
        ("in ensemble 'line', Stub process 'stranger_0_0' is not healthy.", "stub_dead"),
    ],
)
def test_a_text_that_does_not_tell_says_so(text: str, reason: str) -> None:
    failure = failure_of(LINE, text)
    assert failure.stage is None
    assert failure.reason == reason
    assert failure.place.startswith("a stage that is not known (")


def test_two_queues_with_a_bound_are_not_told_apart_by_a_full_one() -> None:
    two = Ensemble("two", (TOKENIZER, Step(Stage("other", "1"), {"text": "text"}, {"o": "o"}, bounded=True)))
    failure = failure_of(two, f"in ensemble 'two', {ID}Exceeds maximum queue size")
    assert (failure.stage, failure.doubt) == (None, "2 of its queues have a bound")


def test_a_model_that_is_no_ensemble_failed_itself() -> None:
    failure = failure_of(Ensemble.single("encoder"), f"{ID}Request timeout expired")
    assert failure.stage == Stage("encoder")


@pytest.mark.parametrize(
    ("text", "reason", "said"),
    [
        ("head version 3: encoder version 2: out of memory", "error", "out of memory"),
        ("head version 3: encoder version 2: Stub process 'encoder_0_0' is not healthy.", "stub_dead", None),
        (f"head version 3: encoder version 2: {ID}Request timeout expired", "queue_timeout", "Request timeout expired"),
        ("head version 3: encoder version 2: Model 'encoder' is not ready", "unavailable", None),
    ],
)
def test_a_model_that_a_stage_calls_is_the_one_that_failed(text: str, reason: str, said: str | None) -> None:
    failure = failure_of(Ensemble("head", (HEAD,)), text, models={"head", "encoder"})
    assert (failure.stage, failure.reason) == (Stage("encoder", "2"), reason)
    assert said is None or failure.text == said


def test_what_a_stage_quotes_is_not_taken_for_a_model_that_it_called() -> None:
    failure = failure_of(Ensemble("head", (HEAD,)), "head version 3: anything version 7: x", models={"head", "encoder"})
    assert (failure.stage, failure.text) == (HEAD.stage, "anything version 7: x")


def test_a_call_is_believed_of_a_stage_only() -> None:
    text = "in ensemble 'line', stranger version 1: encoder version 2: x"
    assert failure_of(LINE, text, models={"stranger", "encoder"}).stage is None


def test_what_a_caller_calls_his_request_does_not_name_a_stage() -> None:
    text = "in ensemble 'line', [request id: encoder version 2: x] Request timeout expired"
    assert failure_of(LINE, text).stage is None


def test_a_lost_output_is_its_makers_fault() -> None:
    assert missing_output(FAN, "language").stage == LANGUAGE.stage


def test_only_inside_an_ensemble_a_wrong_tensor_is_no_fault_of_the_callers() -> None:
    wrong = f"{ID}unexpected shape for input 'text' for model 'line'. Expected [-1,1], got [1,7]."
    assert is_handed_on_wrongly(f"in ensemble 'outer', {wrong}")
    assert not is_handed_on_wrongly(wrong)


MS = 1_000_000
ANSWERED = 100 * MS


def traced(times_ms: Mapping[str, tuple[int, int]], waiting: tuple[str, ...] = ()) -> list[Span]:
    """The spans of stages that began and ended at these times; `waiting` never computed."""
    spans = []
    for name, (start, end) in times_ms.items():
        spans.append(Span("t", name, "root", name, start * MS, end * MS, {"triton.model_name": name}))
        if name not in waiting:
            spans.append(Span("t", f"c-{name}", name, "compute", start * MS, end * MS))
    return spans


def left(reason: str, spans: list[Span]) -> list[str]:
    suspicion = suspicion_by_trace(FAN, reason, spans, ANSWERED)  # type: ignore[arg-type]
    return sorted(stage.model for stage in suspicion.stages)


TOKENIZED = {"tokenizer": (0, 10)}


@pytest.mark.parametrize(
    ("times_ms", "waiting", "stages"),
    [
        ({"tokenizer": (0, 100)}, ("tokenizer",), ["tokenizer"]),
        ({**TOKENIZED, "encoder": (10, 100)}, ("encoder",), ["encoder"]),
        # The language waited longer than the encoder did: it left its queue after the answer.
        ({**TOKENIZED, "encoder": (10, 99), "language": (10, 150)}, ("encoder", "language"), ["encoder"]),
        # Both left in time: the trace does not say which of them was the reason.
        ({**TOKENIZED, "encoder": (10, 99), "language": (10, 99)}, ("encoder", "language"), ["encoder", "language"]),
    ],
)
def test_who_left_a_queue_without_computing_let_the_request_expire(
    times_ms: dict[str, tuple[int, int]], waiting: tuple[str, ...], stages: list[str]
) -> None:
    assert left("queue_timeout", traced(times_ms, waiting)) == stages


@pytest.mark.parametrize(
    ("times_ms", "stages"),
    [
        ({"tokenizer": (0, 100)}, ["tokenizer"]),
        # The language ended before the head began: had it failed, the head would not have.
        ({**TOKENIZED, "encoder": (10, 50), "head": (50, 99), "language": (10, 40)}, ["head"]),
        # The other branch was still running, and ended after the answer.
        ({**TOKENIZED, "encoder": (10, 99), "language": (10, 150)}, ["encoder"]),
        # Both had ended when the answer was read: whoever came first failed, and that is not told.
        ({**TOKENIZED, "encoder": (10, 99), "language": (10, 80)}, ["encoder", "language"]),
        ({}, []),
    ],
)
def test_who_ended_and_was_followed_by_nothing_can_have_failed(
    times_ms: dict[str, tuple[int, int]], stages: list[str]
) -> None:
    assert left("error", traced(times_ms)) == stages


def test_the_committed_zoo_is_read_with_versions_edges_and_bounds() -> None:
    ensembles = load_ensembles(ZOO)
    embed = ensembles["embed"]
    assert [str(step.stage) for step in embed.steps] == ["embed_tokenizer version 1", "embed_encoder version 1"]
    assert [step.bounded for step in embed.steps] == [True, False]
    maker = embed.maker_of("input_ids")
    assert maker is not None
    assert [step.stage.label for step in embed.followers_of(maker)] == ["embed_encoder/1"]
    assert [step.stage.label for step in ensembles["embed_encoder"].steps] == ["embed_encoder/1"]


def test_every_ensemble_of_the_zoo_has_one_queue_with_a_bound_so_that_a_full_one_is_named_without_a_trace() -> None:
    ensembles = [ensemble for ensemble in load_ensembles(ZOO).values() if len(ensemble.steps) > 1]
    assert ensembles
    assert {ensemble.name: sum(step.bounded for step in ensemble.steps) for ensemble in ensembles} == {
        ensemble.name: 1 for ensemble in ensembles
    }


def test_a_configuration_that_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    for name, text in {"good": 'name: "good"', "bad": "name: ]"}.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(text)
    assert list(load_ensembles(tmp_path)) == ["good"]
