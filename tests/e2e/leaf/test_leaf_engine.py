"""The engine alone, on the real weights: what no client could tell apart from outside."""

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zooserve.leaf.engine import Engine
from zooserve.leaf.job import Cancelled, Finished, Job
from zooserve.leaf.llama import EngineSettings, Llama
from zooserve.leaf.sampling import Sampling

pytestmark = pytest.mark.e2e

GGUF = Path(__file__).parents[3] / "model_repository" / "leaf" / "tensorrt_llm" / "1" / "model.gguf"


class Caller:
    """A listener that hangs up once the job has come so far."""

    def __init__(self, leaves: Any = lambda job: False) -> None:
        self.job: Job | None = None
        self.texts: list[str] = []
        self._leaves = leaves
        self._over: queue.Queue[Job] = queue.Queue()

    def progressed(self, job: Job) -> None:
        self.texts.append(job.text)

    def ended(self, job: Job) -> None:
        self._over.put(job)

    def left(self) -> bool:
        return self.job is not None and self._leaves(self.job)

    def end(self) -> Job:
        return self._over.get(timeout=120)


@pytest.fixture(scope="module")
def llama() -> Llama:
    return Llama(EngineSettings(model=GGUF, slots=2, context_per_slot=1024))


@pytest.fixture(scope="module")
def engine(llama: Llama) -> Iterator[Engine]:
    made = Engine(EngineSettings(model=GGUF, slots=2, context_per_slot=1024), llama)
    yield made
    assert made.close()


def start(engine: Engine, prompt: str, caller: Caller | None = None, **sampling: Any) -> Caller:
    caller = caller or Caller()
    caller.job = engine.submit(prompt, Sampling(**sampling), caller)
    return caller


def test_a_client_that_leaves_during_prefill_is_not_prefilled_to_the_end(engine: Engine) -> None:
    caller = start(engine, "word " * 1000, Caller(leaves=lambda job: job.processed_tokens > 0))

    ended = caller.end()

    assert ended.outcome == Cancelled()
    assert 0 < ended.processed_tokens < ended.prompt_tokens
    assert ended.generated_tokens == 0


def test_a_cancelled_request_makes_no_further_token(engine: Engine) -> None:
    ended = start(
        engine, "Once upon a time", Caller(leaves=lambda job: job.generated_tokens >= 3), max_tokens=500
    ).end()

    assert (ended.outcome, ended.generated_tokens) == (Cancelled(), 3)


def test_greedy_text_does_not_depend_on_who_else_decodes(engine: Engine) -> None:
    alone = start(engine, "The capital of France is", max_tokens=12).end()

    pair = [start(engine, prompt, max_tokens=12) for prompt in ("The capital of France is", "Dogs are")]

    assert pair[0].end().text == alone.text
    assert pair[1].end().outcome == Finished("length")


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 5])
def test_an_answer_cut_inside_a_character_leaves_the_half_out(engine: Engine, max_tokens: int) -> None:
    ended = start(engine, "🎉🎊🦄🎉🎊🦄🎉🎊🦄", max_tokens=max_tokens).end()

    assert ended.outcome == Finished("length")
    assert "\N{REPLACEMENT CHARACTER}" not in ended.text


def test_a_penalty_changes_a_repetitive_text(engine: Engine) -> None:
    prompt = "one one one one one one"

    plain = start(engine, prompt, max_tokens=12).end()
    penalised = start(engine, prompt, max_tokens=12, frequency_penalty=2.0, presence_penalty=2.0).end()

    assert penalised.text != plain.text


def test_own_counts_of_live_kv_become_llama_cpps_cached_tokens(engine: Engine, llama: Llama) -> None:
    before = llama.cached_tokens()
    ended = start(engine, "A sentence that nothing else here begins with, to be kept.", max_tokens=5).end()

    assert engine.usage().live_tokens == 0
    assert llama.cached_tokens() > 0
    assert ended.live_tokens == ended.prompt_tokens + 5
    assert before >= 0


def test_a_beginning_token_that_llama_cpp_adds_itself_is_not_sent_twice(engine: Engine, llama: Llama) -> None:
    prompt = "<|im_start|>user\nHi<|im_end|>\n"
    whole = start(engine, prompt, max_tokens=1).end()

    # This checkpoint adds none; a checkpoint that does is played by telling so.
    llama._bos = "<|im_start|>"
    try:
        without = start(engine, prompt, max_tokens=1).end()
    finally:
        llama._bos = ""

    assert without.prompt_tokens == whole.prompt_tokens - 1
