"""The Collector's rules, tried on spans as the router and the real Triton sent them: no Collector is at hand for it.

`spans.json` was recorded from a running platform by tests/e2e/observability/test_live_expressions.py, which fails where
the spans have become others, and says how to write it anew. The rules are applied here in Python, as the sources of the
Collector say that it does.
"""

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from ruamel.yaml import YAML

from zooserve.settings import TracingSettings
from zooserve_observability.trace_receiver import TRACES_PATH
from zooserve_router.chat.ask import Ask
from zooserve_router.dialects import STATUS

ROOT = Path(__file__).parents[3]
CONFIGURATION = YAML(typ="safe", pure=True).load((ROOT / "observability" / "otel" / "collector.yaml").read_text())
SAMPLING = CONFIGURATION["processors"]["tail_sampling"]
RECORDED = json.loads((Path(__file__).parent / "spans.json").read_text())
SOURCES = "".join(
    file.read_text()
    for folder in ("router/zooserve_router", "observability/zooserve_observability")
    for file in sorted((ROOT / folder).rglob("*.py"))
)
Trace = list[dict[str, Any]]

_OTTL = re.compile(r'attributes\["([^"]+)"\] > ([\d.]+)')
_IN_STATEMENTS = re.compile(r'delete_key\(attributes, "([^"]+)"\)')
_READ_AS = {"intValue": int, "doubleValue": float, "stringValue": str, "boolValue": bool}


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    """Of a span, with their values as Python has them."""
    return {each["key"]: read_as(each["value"]) for each in span.get("attributes", ())}


def read_as(value: dict[str, Any]) -> Any:
    (kind, raw) = next(iter(value.items()))
    return _READ_AS[kind](raw) if kind in _READ_AS else raw


def everywhere(trace: Trace, key: str, kind: type) -> list[Any]:
    """The values of an attribute on any span of a trace, as far as they are of a type."""
    found = (attributes(span).get(key) for span in trace)
    return [value for value in found if type(value) is kind]


def by_status(trace: Trace, settings: dict[str, Any]) -> bool:
    return any(
        span.get("status", {}).get("code", "STATUS_CODE_UNSET") == f"STATUS_CODE_{code}"
        for span in trace
        for code in settings["status_codes"]
    )


def by_number(trace: Trace, settings: dict[str, Any]) -> bool:
    """Whole numbers only, as the Collector reads them."""
    values = everywhere(trace, settings["key"], int)
    found = any(settings["min_value"] <= value <= settings["max_value"] for value in values)
    return found != settings.get("invert_match", False)


def by_text(trace: Trace, settings: dict[str, Any]) -> bool:
    found = any(value in settings["values"] for value in everywhere(trace, settings["key"], str))
    return found != settings.get("invert_match", False)


def by_latency(trace: Trace, settings: dict[str, Any]) -> bool:
    began = min(int(span["startTimeUnixNano"]) for span in trace)
    ended = max(int(span["endTimeUnixNano"]) for span in trace)
    return ended - began >= settings["threshold_ms"] * 1_000_000


def by_all(trace: Trace, settings: dict[str, Any]) -> bool:
    return all(keeps(trace, policy) for policy in settings["and_sub_policy"])


def by_condition(trace: Trace, settings: dict[str, Any]) -> bool:
    """Of the transformation language only what the file has of it."""
    for condition in settings["span"]:
        key, limit = _OTTL.fullmatch(condition).groups()
        if any(value > float(limit) for value in everywhere(trace, key, float)):
            return True
    return False


RULES: dict[str, Callable[[Trace, dict[str, Any]], bool]] = {
    "status_code": by_status,
    "numeric_attribute": by_number,
    "string_attribute": by_text,
    "latency": by_latency,
    "and": by_all,
    "ottl_condition": by_condition,
    "probabilistic": lambda trace, settings: False,  # by chance
}


def keeps(trace: Trace, policy: dict[str, Any]) -> bool:
    """Whether a policy keeps a trace."""
    return RULES[policy["type"]](trace, policy[policy["type"]])


def kept_by(trace: Trace) -> set[str]:
    """The policies that keep a trace, but for chance."""
    return {policy["name"] for policy in SAMPLING["policies"] if keeps(trace, policy)}


def changed(kind: str, seconds: float | None = None, **values: Any) -> Trace:
    """A recorded trace whose request took so long, or said something else of itself."""
    trace: Trace = deepcopy(RECORDED[kind])
    (root,) = [span for span in trace if span["name"] == "zooserve.request"]
    if seconds is not None:
        root["endTimeUnixNano"] = str(int(root["startTimeUnixNano"]) + round(seconds * 1e9))
    for each in root["attributes"]:
        if (name := each["key"].replace(".", "_")) in values:
            each["value"] = {next(iter(each["value"])): values[name]}
    return trace


# What is kept


def test_a_request_that_failed_is_kept_by_its_status_its_answer_and_its_outcome() -> None:
    assert kept_by(RECORDED["failed"]) == {"failed", "answered-5xx", "outcome-is-an-error"}


def test_an_answer_that_broke_off_after_its_200_is_kept() -> None:
    broken = changed("ordinary", zooserve_outcome="BackendFailed")
    assert everywhere(broken, "http.response.status_code", int) == [200]
    assert kept_by(broken) == {"outcome-is-an-error"}


@pytest.mark.parametrize("kind", ["ordinary", "refused", "chat"])
def test_ordinary_requests_and_refusals_are_left_to_chance(kind: str) -> None:
    assert kept_by(RECORDED[kind]) == set()


def test_a_refusal_is_left_to_chance_although_a_span_of_it_failed() -> None:
    assert by_status(RECORDED["refused"], {"status_codes": ["ERROR"]})
    assert kept_by(RECORDED["refused"]) == set()


def test_a_second_try_that_made_a_failure_good_is_kept() -> None:
    tried = changed("ordinary")
    (call,) = [span for span in tried if span["name"] == "infer"]
    call["status"] = {"code": "STATUS_CODE_ERROR"}
    assert kept_by(tried) == {"failed"}


def test_a_caller_who_left_is_no_error() -> None:
    assert kept_by(changed("ordinary", zooserve_outcome="cancelled")) == set()


def test_what_took_longer_than_two_seconds_is_kept() -> None:
    assert kept_by(changed("ordinary", 2.5)) == {"slow"}
    assert kept_by(changed("ordinary", 1.5)) == set()


def test_of_a_chat_counts_the_time_until_its_first_token() -> None:
    assert kept_by(changed("chat", 30, zooserve_time_to_first_token_s=0.3)) == set()
    assert kept_by(changed("chat", 30, zooserve_time_to_first_token_s=2.5)) == {"slow-first-token"}


def test_one_policy_leaves_a_share_to_chance_as_the_router_does() -> None:
    (share,) = [policy for policy in SAMPLING["policies"] if policy["type"] == "probabilistic"]
    assert share["probabilistic"]["sampling_percentage"] == TracingSettings().ratio * 100


# Names


def policies(of: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for policy in of:
        yield policy
        yield from policies(policy.get("and", {}).get("and_sub_policy", []))


def read_by_policies() -> set[tuple[str, type]]:
    """The attributes that the policies look at, and as what they read them."""
    found: set[tuple[str, type]] = set()
    for policy in policies(SAMPLING["policies"]):
        settings = policy[policy["type"]]
        if policy["type"] == "ottl_condition":
            found |= {(_OTTL.fullmatch(condition)[1], float) for condition in settings["span"]}
        elif "key" in settings:
            found.add((settings["key"], int if policy["type"] == "numeric_attribute" else str))
    return found


DIMENSIONS = {each["name"] for each in CONFIGURATION["connectors"]["span_metrics"]["dimensions"]}
CONTENT = {
    name
    for statements in CONFIGURATION["processors"]["transform/content"]["trace_statements"]
    for name in _IN_STATEMENTS.findall("\n".join(statements["statements"]))
}


def missing(recorded: dict[str, Trace]) -> set[str]:
    """Attributes that the Collector looks at, and that no span bears in that form."""
    spans = [span for trace in recorded.values() for span in trace]
    borne = {(name, type(value)) for span in spans for name, value in attributes(span).items()}
    return {name for name, kind in read_by_policies() if (name, kind) not in borne} | (
        DIMENSIONS - {name for name, _ in borne}
    )


def test_spans_bear_every_attribute_that_the_collector_looks_at() -> None:
    assert len(read_by_policies()) > 3
    assert missing(RECORDED) == set()


@pytest.mark.parametrize("name", sorted({name for name, _ in read_by_policies()} | DIMENSIONS))
def test_an_attribute_that_is_renamed_is_missed(name: str) -> None:
    renamed = json.loads(json.dumps(RECORDED).replace(f'"{name}"', f'"{name}.new"'))
    assert missing(renamed) == {name}


def test_a_number_that_becomes_a_text_is_missed() -> None:
    as_text = json.loads(json.dumps(RECORDED).replace('"intValue"', '"stringValue"'))
    assert missing(as_text) == {"http.response.status_code"}


@pytest.mark.parametrize("name", sorted({name for name, _ in read_by_policies()} | DIMENSIONS | CONTENT))
def test_the_code_sets_every_attribute_that_the_collector_names(name: str) -> None:
    assert f'"{name}"' in SOURCES


def test_whatever_holds_what_callers_sent_is_taken_out() -> None:
    """Every attribute that the router sets under `keeps_content`, or where it is told a message."""
    chat = (ROOT / "router" / "zooserve_router" / "chat" / "spans.py").read_text()
    content = re.search(r"def _content\(.*?(?=\ndef )", chat, re.DOTALL)[0]
    assert set(re.findall(r'"(zooserve\.\w+)"', content)) == CONTENT - {"error.message"}
    (statements,) = CONFIGURATION["processors"]["transform/content"]["trace_statements"]
    assert 'set(status.message, "")' in statements["statements"]  # `failed(span, error, message)`
    assert CONTENT.isdisjoint(name for trace in RECORDED.values() for span in trace for name in attributes(span))


def test_outcomes_that_are_errors_are_those_that_are_answered_by_5xx() -> None:
    (settings,) = [p["string_attribute"] for p in SAMPLING["policies"] if p["type"] == "string_attribute"]
    assert settings["key"] == "zooserve.outcome"
    assert set(settings["values"]) == {error.__name__ for error, status in STATUS.items() if status >= 500}


def test_chats_are_told_by_every_operation_that_a_chat_may_be() -> None:
    (settings,) = [
        policy["string_attribute"] for policy in policies(SAMPLING["policies"]) if policy.get("name") == "no-chat"
    ]
    assert set(settings["values"]) == set(get_args(get_type_hints(Ask)["operation"]))
    assert set(everywhere(RECORDED["chat"], settings["key"], str)) <= set(settings["values"])


# Sizes and times


def test_slow_is_as_slow_as_the_router_has_it() -> None:
    slow_s = TracingSettings().slow_s
    (latency,) = [policy["latency"] for policy in policies(SAMPLING["policies"]) if policy["type"] == "latency"]
    assert latency["threshold_ms"] == slow_s * 1000
    (condition,) = [p["ottl_condition"]["span"][0] for p in SAMPLING["policies"] if p["type"] == "ottl_condition"]
    assert float(_OTTL.fullmatch(condition)[2]) == slow_s


def test_a_whole_export_of_the_router_goes_into_a_request() -> None:
    largest = 512 * 12_000  # spans at a time (span_export), bytes of one with content
    assert CONFIGURATION["receivers"]["otlp"]["protocols"]["http"]["max_request_body_size"] > 2 * largest
    assert "traces_url_path" not in CONFIGURATION["receivers"]["otlp"]["protocols"]["http"]
    assert TRACES_PATH == "/v1/traces"  # the receiver's own


def test_what_may_wait_is_less_than_the_memory() -> None:
    limiter = CONFIGURATION["processors"]["memory_limiter"]
    waiting = SAMPLING["num_traces"] * 20_000
    queued = CONFIGURATION["exporters"]["otlp_grpc/tempo"]["sending_queue"]["queue_size"]
    assert waiting + queued < (limiter["limit_mib"] - limiter["spike_limit_mib"]) * 2**20
