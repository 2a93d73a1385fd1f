"""The metric vocabulary, alone and over several processes."""

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from zooserve_observability.metrics import RouterMetrics

NAMES = {
    "zooserve_admission_refused",
    "zooserve_admission_wait_seconds",
    "zooserve_breaker_opened",
    "zooserve_breaker_state",
    "zooserve_chat_budget_tokens",
    "zooserve_chat_choices_ended",
    "zooserve_chat_choices_issued",
    "zooserve_chat_held_tokens",
    "zooserve_chat_waiting",
    "zooserve_delivery_delay_seconds",
    "zooserve_draft_acceptance_rate",
    "zooserve_draft_tokens",
    "zooserve_embedding_space_mismatches",
    "zooserve_engine_phase_seconds",
    "zooserve_leaf_kv_blocks",
    "zooserve_leaf_left_out",
    "zooserve_leaf_requests_in_flight",
    "zooserve_log_lines_dropped",
    "zooserve_model_info",
    "zooserve_model_ready",
    "zooserve_refused",
    "zooserve_release_duration_seconds",
    "zooserve_release_requests",
    "zooserve_release_share",
    "zooserve_request_duration_seconds",
    "zooserve_requests",
    "zooserve_requests_in_flight",
    "zooserve_retries",
    "zooserve_spans_dropped",
    "zooserve_spans_exported",
    "zooserve_stage_failures",
    "zooserve_time_per_output_token_seconds",
    "zooserve_time_to_first_token_seconds",
    "zooserve_tokens",
    "zooserve_trace_log_bytes",
    "zooserve_trace_log_max_bytes",
    "zooserve_traces_decided",
    "zooserve_wasted_tokens",
}

REPLICA = """
import os
from prometheus_client import CollectorRegistry
from zooserve_observability.metrics import RouterMetrics
metrics = RouterMetrics(CollectorRegistry())
metrics.ended("embed", "1", "interactive", "ok", 0.01)
with metrics.flying():
    print(metrics.exposition().decode(), flush=True)
    os._exit(0)  # dies with a request in flight, as by kill -9
"""


def families(text: str) -> dict:
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_the_names_are_pinned():
    found = families(RouterMetrics(CollectorRegistry()).exposition().decode())
    assert {name for name in found if not name.endswith("_created")} == NAMES


def test_two_routers_in_one_process_do_not_collide():
    first, second = RouterMetrics(CollectorRegistry()), RouterMetrics(CollectorRegistry())
    first.ended("embed", "1", "bulk", "ok", 0.1)
    assert b'model="embed"' in first.exposition()
    assert b'model="embed"' not in second.exposition()


def test_in_flight_comes_back_down_after_a_failure():
    metrics = RouterMetrics(CollectorRegistry())
    try:
        with metrics.flying():
            assert b"zooserve_requests_in_flight 1.0" in metrics.exposition()
            raise ZeroDivisionError
    except ZeroDivisionError:
        assert b"zooserve_requests_in_flight 0.0" in metrics.exposition()


def test_tokens_are_counted_by_direction_and_none_makes_no_series():
    metrics = RouterMetrics(CollectorRegistry())
    metrics.read_and_wrote("chat", "1", "interactive", 5, 0)
    text = metrics.exposition().decode()
    assert 'direction="input",model="chat",version="1"} 5.0' in text
    assert 'direction="output"' not in text


def test_what_a_model_may_be_asked_stands_at_0_before_it_is_asked():
    registry = CollectorRegistry()
    metrics = RouterMetrics(registry)
    metrics.may_be_asked("chat", "1", ("interactive",), ("input", "output"))
    metrics.chat.may_be_asked(("chat", "1", "interactive"))
    run = {"model": "chat", "version": "1", "class": "interactive"}
    for outcome in ("ok", "Overloaded", "BackendFailed", "BackendUnavailable", "DeadlineExceeded", "InternalError"):
        assert registry.get_sample_value("zooserve_requests_total", {**run, "outcome": outcome}) == 0
    for reason in ("hang_up", "deadline", "stop", "shutdown", "error"):
        assert registry.get_sample_value("zooserve_wasted_tokens_total", {**run, "reason": reason}) == 0
    for outcome in ("finished", "cancelled", "failed"):
        assert registry.get_sample_value("zooserve_chat_choices_ended_total", {**run, "outcome": outcome}) == 0
    assert registry.get_sample_value("zooserve_tokens_total", {**run, "direction": "output"}) == 0


def test_every_replicas_exposition_holds_the_sum_of_all_also_of_one_that_is_gone(tmp_path: Path):
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for replicas in (1, 2):
        run = subprocess.run(
            [sys.executable, "-c", REPLICA], env=environment, capture_output=True, text=True, check=True
        )
        assert f'outcome="ok",version="1"}} {replicas}.0' in run.stdout
        assert "zooserve_requests_in_flight 1.0" in run.stdout
