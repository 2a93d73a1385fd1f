"""Hostile trace contexts, baggage and request ids through HAProxy to a whole platform, and what its access log says."""

import json
import os
import re
import secrets
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

TRACE, PARENT = "ab" * 16, "cd" * 8
SOUND = f"00-{TRACE}-{PARENT}-01".encode()
EMBED = b'{"model": "embed", "input": "a few words"}'
Header = tuple[bytes, bytes]


def ask(platform: Any, *headers: Header, path: bytes = b"/v1/embeddings") -> tuple[int, dict[str, str], bytes]:
    """The status, headers and body that exactly these header lines get; status 0 where a replica died over it."""
    own = ((b"host", b"x"), (b"connection", b"close"), (b"content-length", b"%d" % len(EMBED)))
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in (*own, *headers))
    with socket.create_connection(("127.0.0.1", platform.port), timeout=60) as connection:
        connection.sendall(b"POST " + path + b" HTTP/1.1\r\n" + lines + b"\r\n" + EMBED)
        answer = b""
        with suppress(ConnectionError):
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
    if not answer:
        return 0, {}, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *told = head.decode("latin-1").split("\r\n")
    return int(status.split()[1]), {name.lower(): value for name, value in (line.split(": ", 1) for line in told)}, body


def log_of(platform: Any) -> list[dict[str, Any]]:
    """Every line of the access log; one that is not whole fails the test."""
    file: Path = platform.folder.logs / "access.jsonl"
    text = file.read_bytes()
    assert text.endswith(b"\n")
    return [json.loads(line) for line in text.splitlines()]


def line_of(platform: Any, request_id: str) -> dict[str, Any]:
    """The line of this request, once it is written."""
    while True:
        found = [line for line in log_of(platform) if line["request_id"] == request_id]
        if found:
            (line,) = found
            return line
        time.sleep(0.05)  # between two looks; lines are written every 0.2 s


def served(platform: Any, *headers: Header) -> dict[str, Any]:
    """The access line of a request that these headers must not disturb."""
    status, told, body = ask(platform, *headers)
    assert status == 200, body
    return line_of(platform, told["x-request-id"])


def series(platform: Any) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """The router's own series."""
    families = text_string_to_metric_families(httpx.get(f"{platform.url}/metrics").text)
    return {
        (each.name, tuple(sorted(each.labels.items())))
        for family in families
        for each in family.samples
        if each.name.startswith("zooserve_")
    }


@pytest.mark.parametrize(
    "given",
    [
        b"garbage",
        b"a" * 10_000,
        SOUND.upper(),
        SOUND[:-1],
        SOUND + b"-extra",
        f"ff-{TRACE}-{PARENT}-01".encode(),
        f"00-{'0' * 32}-{PARENT}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{'zz' * 16}-{PARENT}-01".encode(),
        SOUND.replace(b"ab", b"\xc3\xa4", 1),
    ],
)
def test_a_malformed_traceparent_disturbs_nothing_and_starts_a_trace(platform, given):
    line = served(platform, (b"traceparent", given), (b"tracestate", b"a=1"))
    assert len(line["trace_id"]) == 32
    assert line["trace_id"] not in (TRACE, "0" * 32)


def test_a_trace_goes_on_also_one_of_a_version_to_come_and_with_a_bad_tracestate(platform):
    states = (b"", b"a", b"A=;", b",".join(b"k%d=v" % number for number in range(33)), b"a=" + b"x" * 600)
    for number, state in enumerate(states):
        trace_id = f"{number + 1:032x}"
        parents = (f"00-{trace_id}-{PARENT}-01".encode(), f"01-{trace_id}-{PARENT}-01-extra".encode())
        for parent in parents:
            assert served(platform, (b"traceparent", parent), (b"tracestate", state))["trace_id"] == trace_id


def test_200_small_baggage_entries_disturb_nothing_in_one_line_or_in_200(platform):
    entries = [b"key%d=value%d" % (number, number) for number in range(200)]
    trace_id = secrets.token_hex(16)
    parent = (b"traceparent", f"00-{trace_id}-{PARENT}-01".encode())
    for headers in ([(b"baggage", b",".join(entries))], [(b"baggage", entry) for entry in entries]):
        assert served(platform, parent, *headers)["trace_id"] == trace_id


@pytest.mark.parametrize("given", [b"x" * 10_000, b"a b", b'"},{"a":"', b"\xff\xfe", b"{{7*7}}", b"a\r\n b"])
def test_a_hostile_request_id_is_replaced(platform, given):
    line = served(platform, (b"x-request-id", given))
    # Of bytes that are no UTF-8, Ray already makes an id of its own.
    assert re.fullmatch(r"req_[0-9a-f]{24}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", line["request_id"])
    assert given.decode("latin-1") not in json.dumps(line)


@pytest.mark.parametrize("given", [b"a\nb", b"a\rb", b"a\x00b", b"\x00", b"x" * 20_000])
def test_what_is_no_http_is_refused_and_the_next_request_is_served(platform, given):
    assert ask(platform, (b"x-request-id", given))[0] == 400
    assert served(platform)["status"] == 200


def test_no_hostile_header_or_path_makes_a_series(platform):
    served(platform)
    ask(platform, path=b"/v1/0")
    before = series(platform)
    for number in range(200):
        unlike = b"unlike-%d" % number
        names = (b"x-request-id", b"traceparent", b"tracestate", b"baggage", b"x-api-key", b"user-agent")
        assert ask(platform, *((name, unlike) for name in names))[0] == 200
        assert ask(platform, path=b"/v1/%d" % number)[0] == 404
    counted = ("zooserve_request", "zooserve_refused", "zooserve_tokens", "zooserve_stage")
    added = series(platform) - before
    assert not [each for each in added if each[0].startswith(counted)]
    assert "unlike" not in str(added)


def test_a_line_leads_to_the_trace_and_the_trace_to_the_stages(platform):
    line = served(platform)
    drawn = platform.zooserve("trace", line["request_id"], "--json")
    assert drawn.returncode == 0, drawn.stderr
    spans = json.loads(drawn.stdout)["spans"]
    assert {span["trace_id"] for span in spans} == {line["trace_id"]}
    assert {"zooserve.request", "embed_encoder"} <= {span["name"] for span in spans}


def test_health_checks_and_scrapes_are_not_logged(platform):
    for path in ("/health/live", "/health/ready", "/metrics"):
        httpx.get(f"{platform.url}{path}")
    served(platform)
    assert not [line for line in log_of(platform) if line["route"] in ("/health/live", "/health/ready", "/metrics")]


@pytest.fixture(scope="module")
def two_replicas(platforms_of_module) -> Any:
    """A platform of one model and two replicas, which traces only what its callers trace."""
    platform = platforms_of_module(
        ZOOSERVE_MODELS="embed",
        ZOOSERVE_ROUTER__REPLICAS="2",
        ZOOSERVE_TRACING__SAMPLING="head",
        ZOOSERVE_TRACING__RATIO="0",
    )
    platform.up()
    return platform


def replicas_that_answer(platform: Any, key: bytes) -> dict[int, str]:
    """The names that this key has, by the replica that named it; as many requests as it takes to see two."""
    names: dict[int, str] = {}
    while len(names) < 2:
        status, told, _ = ask(platform, (b"authorization", b"Bearer " + key))
        if status == 200:  # not yet ready is the one other answer that there can be
            line = line_of(platform, told["x-request-id"])
            names[line["pid"]] = line["key_id"]
    return names


def test_a_key_has_one_name_in_every_replica_after_a_kill_and_after_a_restart(two_replicas):
    first = replicas_that_answer(two_replicas, b"s3cret")
    (name,) = set(first.values())
    os.kill(next(iter(first)), signal.SIGKILL)
    again = replicas_that_answer(two_replicas, b"s3cret")  # every line of the log is read, and whole
    assert set(again.values()) == {name}
    assert set(again) != set(first)
    two_replicas.down()
    two_replicas.up()
    after = replicas_that_answer(two_replicas, b"s3cret")
    assert set(after.values()) == {name}
    logs = [file for file in two_replicas.folder.logs.rglob("*") if file.is_file()]
    assert b"s3cret" not in b"".join(file.read_bytes() for file in logs)


def test_by_head_triton_traces_what_the_caller_traces_and_nothing_else(two_replicas):
    replicas_that_answer(two_replicas, b"s3cret")  # both are ready
    ids = {}
    for flags in ("01", "00"):
        trace_id = secrets.token_hex(16)
        line = served(two_replicas, (b"traceparent", f"00-{trace_id}-{PARENT}-{flags}".encode()))
        assert line["trace_id"] == trace_id
        ids[flags] = line["request_id"]
    without = served(two_replicas)
    drawn = two_replicas.zooserve("trace", ids["01"], "--json")
    assert drawn.returncode == 0, drawn.stderr
    assert "embed_encoder" in {span["name"] for span in json.loads(drawn.stdout)["spans"]}
    for request_id in (ids["00"], without["request_id"]):
        assert two_replicas.zooserve("trace", request_id).returncode != 0
    log = two_replicas.zooserve("trace", "--json", "--limit", "1000")
    assert json.dumps(json.loads(log.stdout)).count(ids["01"]) >= 1
    assert without["trace_id"] not in log.stdout
