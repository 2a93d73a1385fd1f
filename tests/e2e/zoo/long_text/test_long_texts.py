"""Long texts through the stage that calls the encoder: the right vectors, and no deadlock whatever goes wrong."""

import os
import random
import signal
import threading
import time
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
OUTPUTS = ["embedding", "tokens", "chunks"]
SLOW = "w7"


def words(ids: list[int]) -> str:
    return " ".join(f"w{number}" for number in ids)


def some_ids(count: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(20, 384), k=count)


def stub_of(shelf: Any, model: str) -> int:
    children = psutil.Process(shelf.server.pid).children(recursive=True)
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return next(child.pid for child in alive if f"{model}_0_0" in child.cmdline())


def rows_encoded(shelf: Any) -> int:
    return int(shelf.statistics("embed_encoder")["inference_count"])


@pytest.mark.parametrize("count", [0, 1, 254, 255, 508, 3000])
def test_a_vector_is_the_mean_of_its_windows_weighted_by_their_tokens(
    shelf: Any, expected_vector: Any, count: int
) -> None:
    ids = some_ids(count)
    answer = shelf.ask("embed_long", [words(ids)], OUTPUTS)
    if ids:
        np.testing.assert_allclose(answer["embedding"][0], expected_vector(ids), atol=1e-5)
    assert answer["tokens"].tolist() == [[count + 2]]
    assert answer["chunks"].tolist() == [[max(1, -(-count // 254))]]


def test_texts_of_one_request_keep_their_own_vectors(shelf: Any, expected_vector: Any) -> None:
    texts = [some_ids(count, seed=count) for count in (700, 3, 254, 1500)]
    answer = shelf.ask("embed_long", [words(ids) for ids in texts], OUTPUTS)
    for ids, vector in zip(texts, answer["embedding"], strict=True):
        np.testing.assert_allclose(vector, expected_vector(ids), atol=1e-5)


def test_64_requests_at_once_are_all_answered_by_the_one_instance(shelf: Any, expected_vector: Any) -> None:
    texts = [some_ids(300 + 20 * seed, seed) for seed in range(64)]
    answers = shelf.at_once([lambda ids=ids: shelf.ask("embed_long", [words(ids)], OUTPUTS) for ids in texts])
    for ids, answer in zip(texts, answers, strict=True):
        np.testing.assert_allclose(answer["embedding"][0], expected_vector(ids), atol=1e-5)


def test_a_bad_text_fails_its_own_request_only(shelf: Any) -> None:
    texts: list[str | bytes] = [words(some_ids(600)), b"\xff", words([20] * 8191), words([*some_ids(400), 13])] * 4
    outcomes = shelf.at_once([lambda text=text: shelf.ask("embed_long", [text], OUTPUTS) for text in texts])
    for good, unreadable, too_long, unlucky in zip(*[iter(outcomes)] * 4, strict=True):
        assert good["chunks"].tolist() == [[3]]
        assert "embed_long version 1: text 0 is not UTF-8" in unreadable.message()
        assert "embed_long version 1: text 0 has 8193 tokens; at most 8192 are read" in too_long.message()
        assert too_long.status() == "400"
        assert "embed_long version 1: embed_encoder version 1: unlucky" in unlucky.message()


def test_a_request_s_own_timeout_goes_on_to_the_encoder(shelf: Any) -> None:
    began = time.monotonic()
    with pytest.raises(InferenceServerException, match=r"embed_long version 1: .*timeout expired"):
        shelf.ask("embed_long", [f"{SLOW} " * 8000], OUTPUTS, timeout=1_000_000)
    assert time.monotonic() - began < 3.2  # all of it: 32 rows of 0.1 s


def test_a_caller_who_leaves_stops_the_calls_that_have_not_begun(shelf: Any) -> None:
    before = rows_encoded(shelf)
    with tritonclient.grpc.InferenceServerClient(shelf.server.addresses.grpc) as client:
        text = tritonclient.grpc.InferInput("text", [1, 1], "BYTES")
        text.set_data_from_numpy(np.array([[f"{SLOW} " * 8100]], object))
        ended = threading.Event()
        call = client.async_infer("embed_long", [text], callback=lambda result, error: ended.set())
        shelf.eventually(lambda: shelf.statistics("embed_long")["inference_stats"]["queue"]["count"] > 0)
        time.sleep(0.2)
        call.cancel()
        assert ended.wait(10)
    answer = shelf.ask("embed_long", [words(some_ids(300))], ["chunks"])  # waits for what the other still does
    assert answer["chunks"].tolist() == [[2]]
    assert rows_encoded(shelf) - before < 2 + 32


def test_a_killed_encoder_is_named_and_nobody_waits_for_it(shelf: Any) -> None:
    killed = threading.Timer(0.5, lambda: os.kill(stub_of(shelf, "embed_encoder"), signal.SIGKILL))
    killed.start()
    outcomes = shelf.at_once([lambda: shelf.ask("embed_long", [f"{SLOW} " * 4000], OUTPUTS)] * 4)
    killed.join()
    assert any(isinstance(outcome, InferenceServerException) for outcome in outcomes)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            assert "embed_long version 1: embed_encoder version 1: " in str(outcome)
    heal(shelf, "embed_encoder")


def test_an_encoder_that_is_not_there_is_named(shelf: Any) -> None:
    shelf.client.unload_model("embed_encoder")
    shelf.eventually(lambda: shelf.state("embed_encoder")[0] == "UNAVAILABLE")
    with pytest.raises(InferenceServerException, match="embed_long version 1: embed_encoder version 1: ") as refused:
        shelf.ask("embed_long", [words(some_ids(300))], OUTPUTS)
    assert "not ready" in refused.value.message() or "no available versions" in refused.value.message()
    heal(shelf, "embed_encoder")


def test_a_killed_stage_answers_an_error_and_heals_by_a_reload(shelf: Any) -> None:
    os.kill(stub_of(shelf, "embed_long"), signal.SIGKILL)
    with pytest.raises(InferenceServerException, match="Stub process 'embed_long_0_0' is not healthy"):
        shelf.ask("embed_long", [words(some_ids(300))], OUTPUTS)
    heal(shelf, "embed_long")


def heal(shelf: Any, model: str) -> None:
    shelf.client.unload_model(model)  # without it a load is skipped while no file has changed
    shelf.client.load_model(model)
    assert shelf.ask("embed_long", [words(some_ids(300))], ["chunks"])["chunks"].tolist() == [[2]]


def test_the_calls_are_children_of_the_request_in_its_trace(shelf: Any, receiver: Any) -> None:
    trace_id = f"{random.Random().getrandbits(128):032x}"
    headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
    shelf.ask("embed_long", [words(some_ids(10 * 254 + 5))], OUTPUTS, headers=headers)
    shelf.eventually(lambda: len(named(receiver, trace_id, "embed_encoder")) == 3)  # 8 rows, 2 rows, 1 short row
    (parent,) = named(receiver, trace_id, "embed_long")
    assert {span["parentSpanId"] for span in named(receiver, trace_id, "embed_encoder")} == {parent["spanId"]}


def named(receiver: Any, trace_id: str, name: str) -> list[dict[str, Any]]:
    return [span for span in receiver.spans if span["traceId"].lower() == trace_id and span["name"] == name]
