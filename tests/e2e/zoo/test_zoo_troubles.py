"""The committed zoo in a real Triton, when things go wrong: bad texts, full queues, dead stubs."""

import os
import signal
from typing import Any

import numpy as np
import psutil
import pytest
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.e2e

OUTPUT = {"embed": "embedding", "rerank": "score", "classify": "probabilities", "rag_query": "injection_probability"}
ODD_TEXTS = [
    "",
    "\0",
    "nul\0inside",
    " " * 50_000,
    "x" * 50_000,
    "漢" * 50_000,
    "word " * 20_000,
    "👩‍👩‍👧‍👦" * 500,
    "\u202e\ufeff\u200b\u0301" * 50,
    "\uffff\U0010ffff\ue000",
    "[CLS] [SEP] [MASK] [PAD]",
    "\r\n\t\v\f",
    "ﷺ" * 200,
    "ẞİı" * 100,
]


def no_answer(zoo: Any, model: str, texts: list[str | bytes], **options: Any) -> InferenceServerException:
    with pytest.raises(InferenceServerException) as refused:
        zoo.ask(model, texts, [OUTPUT[model]], **options)
    return refused.value


@pytest.mark.parametrize("model", OUTPUT)
def test_every_valid_text_gets_finite_numbers(zoo: Any, model: str) -> None:
    found = zoo.ask(model, ODD_TEXTS, [OUTPUT[model]])[OUTPUT[model]]
    assert len(found) == len(ODD_TEXTS)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("model", OUTPUT)
@pytest.mark.parametrize("raw", [b"\xff\xfe", b"cut\xe6\xbc", b"\xed\xa0\x80"])
def test_bytes_that_are_not_utf8_are_refused_by_the_stage_that_reads_them(zoo: Any, model: str, raw: bytes) -> None:
    refused = no_answer(zoo, model, ["fine", raw])
    assert refused.status() == "400"
    assert f"{model}_tokenizer version 1: text 1 is not UTF-8" in refused.message()


def test_a_bad_text_leaves_the_requests_beside_it_alone(zoo: Any) -> None:
    outcomes = zoo.at_once(
        [lambda text=text: zoo.ask("embed", [text], ["embedding"]) for text in (["good", b"\xff"] * 8)]
    )
    assert [isinstance(outcome, InferenceServerException) for outcome in outcomes] == [False, True] * 8


def test_token_ids_outside_the_vocabulary_are_refused_by_name(zoo: Any) -> None:
    ids = {"input_ids": np.full((1, 16), 999_999, np.int64), "attention_mask": np.ones((1, 16), np.int64)}
    with pytest.raises(InferenceServerException, match="embed_encoder version 1: ") as refused:
        zoo.infer("embed_encoder", ids, ["sentence_embedding"])
    assert refused.value.status() == "400"


def test_a_request_that_waits_past_its_timeout_is_refused(zoo: Any) -> None:
    long = ["word " * 300] * 32
    outcomes = zoo.at_once(
        [lambda: zoo.ask("embed", long, ["embedding"])] * 3
        + [lambda: zoo.ask("embed", ["short"], ["embedding"], timeout=1000)] * 12
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, InferenceServerException)]
    assert refused
    assert all(outcome.status() == "503" and "Request timeout expired" in outcome.message() for outcome in refused)
    assert not any(isinstance(outcome, Exception) for outcome in outcomes[:3])


@pytest.mark.parametrize("stage", ["embed_tokenizer", "embed_encoder"])
def test_a_killed_stub_is_named_and_heals_by_a_reload(zoo: Any, stage: str) -> None:
    os.kill(stub_of(zoo, stage), signal.SIGKILL)
    refused = no_answer(zoo, "embed", ["hello"])
    assert refused.status() == "500"
    assert f"Stub process '{stage}_0_0' is not healthy" in refused.message()
    # A load alone is skipped while no file has changed.
    zoo.client.unload_model(stage)
    zoo.client.load_model(stage)
    assert zoo.ask("embed", ["hello"], ["tokens"])["tokens"].tolist() == [[3]]
    assert np.isfinite(zoo.ask("rag_query", ["hello"], ["embedding"])["embedding"]).all()


def stub_of(zoo: Any, model: str) -> int:
    """The stub's process: the instance's name is among its arguments."""
    children = psutil.Process(zoo.server.pid).children(recursive=True)
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return next(child.pid for child in alive if f"{model}_0_0" in child.cmdline())
