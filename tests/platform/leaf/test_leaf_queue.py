"""The engine's queue and ends, over a scripted llama.cpp whose every token the test lets out."""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from zooserve.errors import BackendUnavailable, BadInput, Overloaded
from zooserve.leaf.engine import Engine
from zooserve.leaf.job import Cancelled, Failed, Finished, Job
from zooserve.leaf.llama import EngineSettings
from zooserve.leaf.metrics import load_in, samples
from zooserve.leaf.sampling import Sampling

SETTINGS = EngineSettings(
    model=Path("none.gguf"), slots=1, context_per_slot=128, max_waiting=2, cancellation_check_period_ms=5
)
PROGRESS = {"prompt_progress": {"total": 70, "cache": 64, "processed": 70}}


def token(text: str, count: int, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": reason, "logprobs": None}], "timings": {"predicted_n": count}}


class Script:
    """Gives each prompt the chunks that the test puts into its queue; None ends without a word."""

    def __init__(self) -> None:
        self.chunks: dict[str, queue.Queue[Any]] = {name: queue.Queue() for name in ("a", "b", "c", "d")}
        self.started: queue.Queue[str] = queue.Queue()
        self.closed = threading.Event()

    def complete(self, prompt: str, fields: Mapping[str, Any], on_chunk: Callable[[dict[str, Any]], bool]) -> None:
        self.started.put(prompt)
        while (chunk := self.chunks[prompt].get(timeout=20)) is not None:
            if isinstance(chunk, Exception):
                raise chunk
            if on_chunk(chunk):
                return

    def cached_tokens(self) -> int:
        return 0

    def close(self) -> None:
        self.closed.set()


class Caller:
    """A listener that remembers, and may hang up."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.texts: queue.Queue[str] = queue.Queue()
        self.over: queue.Queue[Any] = queue.Queue()
        self.gone = threading.Event()
        self._fault = fault

    def progressed(self, job: Job) -> None:
        if self._fault:
            raise self._fault
        self.texts.put(job.text)

    def ended(self, job: Job) -> None:
        self.over.put(job.outcome)

    def left(self) -> bool:
        return self.gone.is_set()

    def outcome(self) -> Any:
        return self.over.get(timeout=20)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def engine(script: Script) -> Iterator[Engine]:
    made = Engine(SETTINGS, script)
    yield made
    for chunks in script.chunks.values():
        chunks.put(None)
    assert made.close(timeout_s=20)


def start(engine: Engine, prompt: str, caller: Caller | None = None, **sampling: Any) -> tuple[Job, Caller]:
    caller = caller or Caller()
    return engine.submit(prompt, Sampling(**sampling), caller), caller


def test_a_second_request_waits_for_the_only_slot(engine: Engine, script: Script) -> None:
    start(engine, "a")
    assert script.started.get(timeout=20) == "a"
    start(engine, "b")

    assert (engine.usage().active, engine.usage().waiting) == (1, 1)
    script.chunks["a"].put(token("x", 1, "stop"))
    assert script.started.get(timeout=20) == "b"


def test_a_cancelled_waiter_leaves_at_once_and_takes_no_slot(engine: Engine, script: Script) -> None:
    start(engine, "a")
    script.started.get(timeout=20)
    waiter, caller = start(engine, "b")

    engine.cancel(waiter)

    assert caller.outcome() == Cancelled()
    script.chunks["a"].put(token("x", 1, "stop"))
    start(engine, "c")
    assert script.started.get(timeout=20) == "c"


def test_a_waiter_whose_client_hangs_up_is_noticed(engine: Engine, script: Script) -> None:
    start(engine, "a")
    script.started.get(timeout=20)
    _, caller = start(engine, "b")

    caller.gone.set()

    assert caller.outcome() == Cancelled()
    assert engine.usage().waiting == 0


def test_over_the_bound_a_request_is_refused_out_loud(engine: Engine, script: Script) -> None:
    start(engine, "a")
    script.started.get(timeout=20)
    start(engine, "b")
    start(engine, "c")

    with pytest.raises(Overloaded, match="2 requests already wait"):
        start(engine, "d")


def test_a_client_that_hangs_up_ends_its_request_at_the_next_chunk(engine: Engine, script: Script) -> None:
    _, caller = start(engine, "a")
    script.chunks["a"].put(token("x", 1))
    assert caller.texts.get(timeout=20) == "x"
    caller.gone.set()

    script.chunks["a"].put(token("y", 2))

    assert caller.outcome() == Cancelled()
    assert engine.usage().active == 0


def test_a_request_is_left_during_prefill_too(engine: Engine, script: Script) -> None:
    _, caller = start(engine, "a")
    caller.gone.set()

    script.chunks["a"].put(PROGRESS)

    assert caller.outcome() == Cancelled()


def test_an_ended_request_can_be_cancelled_without_effect(engine: Engine, script: Script) -> None:
    ended, caller = start(engine, "a")
    script.chunks["a"].put(token("x", 1, "length"))
    assert caller.outcome() == Finished("length")

    engine.cancel(ended)

    assert caller.over.empty()


def test_the_matched_stop_string_is_told_and_ends_the_decoding(engine: Engine, script: Script) -> None:
    done, caller = start(engine, "a", stop=("END",))
    for count, text in enumerate(("word E", "N", "D more")):
        script.chunks["a"].put(token(text, count + 1))

    assert caller.outcome() == Finished("stop", "END")
    assert done.text == "word "


def test_times_are_in_order_and_kv_is_counted(engine: Engine, script: Script) -> None:
    done, caller = start(engine, "a")
    script.chunks["a"].put(PROGRESS)
    script.chunks["a"].put(token("x", 1))
    caller.texts.get(timeout=20)

    assert (engine.usage().live_tokens, engine.usage().live_blocks) == (71, 3)
    script.chunks["a"].put(token("", 2, "stop"))
    assert caller.outcome() == Finished("stop")
    assert done.arrival_ns <= done.first_scheduled_ns <= done.first_token_ns <= done.last_token_ns
    assert (engine.usage().live_tokens, engine.usage().reused_blocks) == (0, 2)


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        ({"error": {"message": "too many tokens"}}, "too many tokens"),
        (RuntimeError("C++ said no"), "C++ said no"),
        (None, "without an answer"),
        ({"unheard": "of"}, "choices"),
    ],
    ids=["told", "raised", "silent", "unreadable"],
)
def test_a_failure_belongs_to_its_request_alone(engine: Engine, script: Script, chunk: Any, message: str) -> None:
    _, caller = start(engine, "a")
    script.chunks["a"].put(chunk)

    failed = caller.outcome()

    assert isinstance(failed, Failed)
    assert message in failed.message
    _, after = start(engine, "b")
    script.chunks["b"].put(token("x", 1, "stop"))
    assert after.outcome() == Finished("stop")


def test_a_listener_that_raises_ends_its_request(engine: Engine, script: Script) -> None:
    _, caller = start(engine, "a", Caller(fault=ValueError("cannot send")))
    script.chunks["a"].put(token("x", 1))

    assert caller.outcome() == Failed("cannot send")


def test_an_empty_prompt_is_refused(engine: Engine) -> None:
    with pytest.raises(BadInput, match="empty"):
        start(engine, "")


def test_closing_ends_the_running_and_the_waiting(script: Script) -> None:
    engine = Engine(SETTINGS, script)
    _, running = start(engine, "a")
    script.started.get(timeout=20)
    _, waiting = start(engine, "b")
    script.chunks["a"].put(PROGRESS)
    closing = threading.Thread(target=engine.close)

    closing.start()

    assert waiting.outcome() == Failed("the leaf is shutting down")
    script.chunks["a"].put(PROGRESS)
    assert running.outcome() == Failed("the leaf is shutting down")
    closing.join()
    assert script.closed.is_set()
    with pytest.raises(BackendUnavailable):
        start(engine, "c")


def test_a_request_that_does_not_end_keeps_the_model_alive(script: Script) -> None:
    engine = Engine(SETTINGS, script)
    start(engine, "a")
    script.started.get(timeout=20)

    assert not engine.close(timeout_s=0.01)
    assert not script.closed.is_set()
    script.chunks["a"].put(None)


def test_the_load_is_read_back_from_a_metrics_page(engine: Engine, script: Script) -> None:
    start(engine, "a")
    script.started.get(timeout=20)
    start(engine, "b")
    labels = {
        "nv_trt_llm_request_metrics": "request_type",
        "nv_trt_llm_kv_cache_block_metrics": "kv_cache_block_type",
        "zooserve_leaf_kv_tokens": "kv_state",
        "zooserve_leaf_generated_tokens_total": "leaf",
    }
    page = "\n".join(
        f'{family}{{{labels[family]}="{value}",model="tensorrt_llm",version="1"}} {number}'
        for (family, value), number in samples(engine.usage(), 640, 32).items()
    )

    load = load_in(page)

    assert (load.active_requests, load.waiting_requests, load.cached_kv_tokens) == (1, 1, 640)


def test_every_token_is_counted_whatever_becomes_of_its_request(engine: Engine, script: Script) -> None:
    finished, caller = start(engine, "a")
    for chunk in (PROGRESS, token("x", 1), token("y", 2), token("", 3, "stop")):
        script.chunks["a"].put(chunk)
    caller.outcome()
    cancelled, left = start(engine, "b")
    script.chunks["b"].put(token("x", 1))
    left.texts.get(timeout=20)
    assert engine.usage().generated_tokens == 3 + 1
    engine.cancel(cancelled)
    script.chunks["b"].put(token("y", 2))
    assert left.outcome() == Cancelled()
    broken, failed = start(engine, "c")
    script.chunks["c"].put(token("x", 5))
    script.chunks["c"].put(RuntimeError("broken"))
    failed.outcome()
    assert engine.usage().generated_tokens == 3 + 2 + 5
    assert [job.generated_tokens for job in (finished, cancelled, broken)] == [3, 2, 5]


def test_a_page_without_the_leaf_is_an_error() -> None:
    with pytest.raises(LookupError, match="nv_trt_llm_request_metrics"):
        load_in("nv_inference_count 3\n")
