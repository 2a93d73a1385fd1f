"""The plan's arithmetic, and that its rates are the recorded ones."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def plan() -> Any:
    spec = importlib.util.spec_from_file_location("reembed_plan", BENCHMARKS / "reembed_plan.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reembed_plan"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def free(plan: Any) -> Any:
    """Nothing but embedding bounds it, 100 texts/s a GPU at 100 tokens and 50 at 200."""
    return plan.Assumptions(
        tokens_per_chunk=100,
        texts_per_s={100: 100.0, 200: 50.0},
        loss_per_gpu=0.0,
        headroom=1.0,
        read_per_s=1e9,
        write_per_s=1e9,
        index_per_s=1e12,
    )


def test_its_rates_are_those_that_were_recorded(plan: Any) -> None:
    recorded = json.loads((BENCHMARKS / "recorded" / "bulk_gpu_h200.json").read_text())["measured"]
    for rates, layout in ((plan.COMMITTED, (1, 1, 2048)), (plan.TUNED, (12, 2, 16_384))):
        found = {
            round(one["tokens"]): round(one["texts_per_s"])
            for one in recorded
            if (one["layout"]["tokenizers"], one["layout"]["encoders"], one["layout"]["request_tokens"]) == layout
            and one["gpus"] == 1
            and one["layout"]["rows"] == 64
        }
        assert found == rates


def test_the_recorded_run_failed_nothing_and_kept_interactive_within_its_bound() -> None:
    recorded = json.loads((BENCHMARKS / "recorded" / "bulk_gpu_h200.json").read_text())["measured"]
    assert recorded
    assert all(one["failed"] == 0 for one in recorded)
    assert all(one["beside_p95_ms"] <= 1.5 * one["idle_p95_ms"] for one in recorded)


@pytest.mark.parametrize(("tokens", "rate"), [(100, 100.0), (200, 50.0), (150, 1 / 0.015), (400, 25.0), (10, 100.0)])
def test_a_rate_is_drawn_between_lengths_and_falls_with_the_tokens_beyond(plan: Any, tokens: int, rate: float) -> None:
    assert plan.texts_per_s(tokens, {200: 50.0, 100: 100.0}) == pytest.approx(rate)


def test_hours_are_chunks_over_the_pace(plan: Any, free: Any) -> None:
    one = plan.estimate(720_000, 1, free)
    assert one.bound_by == "embedding"
    assert one.hours == pytest.approx(2.0)
    assert plan.estimate(720_000, 4, free).hours == pytest.approx(0.5)


def test_each_gpu_more_loses_its_share_and_headroom_takes_another(plan: Any, free: Any) -> None:
    lossy = replace(free, loss_per_gpu=0.02, headroom=0.5)
    assert plan.estimate(1, 16, lossy).embed_per_s == pytest.approx(16 * 100 * (1 - 0.02 * 15) * 0.5)


@pytest.mark.parametrize(("slow", "name"), [({"read_per_s": 10.0}, "reading"), ({"write_per_s": 10.0}, "writing")])
def test_the_slowest_stage_sets_the_pace(plan: Any, free: Any, slow: dict[str, float], name: str) -> None:
    one = plan.estimate(36_000, 16, replace(free, **slow))
    assert (one.bound_by, one.pace_per_s) == (name, 10.0)
    assert one.hours == pytest.approx(1.0)


def test_more_writers_share_the_writing_and_the_index(plan: Any, free: Any) -> None:
    slow = replace(free, write_per_s=10.0, index_per_s=10.0)
    assert plan.estimate(36_000, 16, slow).hours == pytest.approx(2.0)
    assert plan.estimate(36_000, 16, replace(slow, writers=2)).hours == pytest.approx(1.0)
    assert plan.units_for(1, slow) == 10


@pytest.mark.parametrize(("chunks", "gpus"), [(0, 1), (1, 0)])
def test_nothing_is_estimated_of_nothing(plan: Any, free: Any, chunks: int, gpus: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        plan.estimate(chunks, gpus, free)


@pytest.mark.parametrize(
    "bad", [{"read_per_s": 0.0}, {"headroom": -1.0}, {"loss_per_gpu": 0.5}, {"tokens_per_chunk": 0.0}]
)
def test_a_rate_that_is_none_is_refused(plan: Any, free: Any, bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="0"):
        plan.estimate(1, 4, replace(free, **bad))
