"""`zooserve trace` over a recorded store."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zooserve.processes.state import StateFolder, unplanned
from zooserve_observability.spans import Event, Span, read_spans
from zooserve_observability.trace_log.portions import portions_of
from zooserve_observability.trace_log.store import Settled, TraceStore

ROOT = Path(__file__).parents[3]
EXPORT = ROOT / "tests" / "observability" / "trace_log" / "triton_rag_query.json"
MS = 1_000_000
RAG = "bc975d3b-c2bb-4cd1-8617-9e697ee6ea1b"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

Trace = Callable[..., "subprocess.CompletedProcess[str]"]


def root_of(request_id: str, trace_id: str, began_ns: int, ended_ns: int, error: str = "", **said: str) -> Span:
    told = {
        "zooserve.request_id": request_id,
        "zooserve.slo_class": "interactive",
        "zooserve.outcome": "ok",
        **{f"zooserve.{name}": value for name, value in said.items()},
    }
    return Span(trace_id, "a" * 16, "", "zooserve.request", began_ns, ended_ns, told, error, 2)


def rag_query() -> list[Span]:
    """A request around what Triton 2.51 exported of it."""
    triton = read_spans(EXPORT.read_bytes())
    call = next(span for span in triton if span.name == "InferRequest")
    began_ns, ended_ns = call.start_ns - 2 * MS, call.end_ns + MS
    said = {"zooserve.model": "rag_query", "zooserve.model_version": "1"}
    return [
        root_of(RAG, call.trace_id, began_ns, ended_ns, model="rag_query", model_version="1"),
        Span(call.trace_id, call.parent_id, "a" * 16, "infer", began_ns + MS, ended_ns - MS // 2, said, kind=3),
        *triton,
    ]


def chat(evil: str = "") -> list[Span]:
    """A chat of 2 s whose decoding failed."""
    trace_id, began_ns = "cd" * 16, 1_700_000_000 * 10**9
    said = {"zooserve.model": f"chat{evil}", "zooserve.model_version": "3"}
    failed = {**said, "error.type": "BackendFailed"}

    def phase(number: int, name: str, begin_ms: int, end_ms: int) -> Span:
        began, ended = (began_ns + at_ms * MS for at_ms in (begin_ms, end_ms))
        return Span(trace_id, f"{number:016x}", "b" * 16, f"{name}{evil}", began, ended, said)

    return [
        root_of("my-chat", trace_id, began_ns, began_ns + 2000 * MS, "failed", outcome=f"BackendFailed{evil}",
                model=f"chat{evil}", model_version="3", time_to_first_token_s="0.31"),
        Span(trace_id, "b" * 16, "a" * 16, "chat", began_ns, began_ns + 1950 * MS, failed, f"gone{evil}"),
        phase(1, "queue", 0, 200),
        phase(2, "prefill", 200, 300),
        phase(3, "decode", 300, 1900),
    ]  # fmt: skip


def stored(folder: Path, *traces: list[Span]) -> None:
    folder.mkdir(exist_ok=True)
    store = TraceStore(folder / "traces.db", 2**24)
    for spans in traces:
        decision: Any = "error" if spans[0].error else "left_out"
        store.write([Settled(spans[0].trace_id, decision, tuple(portions_of(spans)))])
    store.close()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def trace(state: Path) -> Trace:
    def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "zooserve_cli", "trace", *arguments],
            env={**os.environ, "ZOOSERVE_STATE_DIR": str(state), "COLUMNS": "80", "TZ": "UTC", **environment},
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    return run


def test_the_list_names_every_request_the_newest_first(trace: Trace, state: Path) -> None:
    stored(state, chat(), rag_query())
    head, first, second = trace().stdout.splitlines()
    assert head.split() == ["time", "request", "model", "class", "outcome", "took", "spans"]
    assert first.split()[-7:] == [RAG, "rag_query@1", "interactive", "ok", "17", "ms", "12"]
    assert second.split()[-7:] == ["my-chat", "chat@3", "interactive", "BackendFailed", "2,000", "ms", "5"]
    assert "my-chat" in trace("--errors").stdout
    assert RAG not in trace("--errors").stdout
    assert trace("--limit", "1").stdout.count("\n") == 2


def test_the_waterfall_names_model_version_and_time_of_each_stage_and_the_slowest(trace: Trace, state: Path) -> None:
    stored(state, rag_query())
    done = trace(RAG)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == f"{RAG}  rag_query@1  interactive  ok  17 ms"
    rows = {line[:34].strip(): line for line in done.stdout.splitlines()[4:]}
    for stage in ("rag_query_tokenizer@1", "embed_encoder@1", "language_encoder@1", "injection_head@1"):
        assert stage in rows
    assert rows["compute embed_encoder@1"].rstrip().endswith("11 ms ◀")
    assert "░" in rows["embed_encoder@1"]
    assert done.stdout.splitlines()[-2] == "slowest: embed_encoder@1, compute, 11 ms of 17 ms (62%)"
    assert max(map(len, done.stdout.splitlines())) <= 80
    began = {name: row.index(sign) for name, row in rows.items() for sign in "─█░" if sign in row}
    assert began["compute embed_encoder@1"] < began["compute injection_head@1"]


def test_an_id_its_beginning_and_a_traces_id_draw_the_same(trace: Trace, state: Path) -> None:
    stored(state, rag_query(), chat())
    drawn = trace(RAG).stdout
    assert trace(RAG[:12]).stdout == trace(f"{RAG[:15]}…").stdout == drawn
    assert trace(rag_query()[0].trace_id.upper()).stdout == drawn
    assert trace("--last").stdout == drawn


def test_the_slowest_and_the_failed_can_be_asked_for(trace: Trace, state: Path) -> None:
    stored(state, rag_query(), [replace(span, error="") for span in chat()])
    drawn = trace("--slow").stdout
    assert "first token after 310 ms" in drawn
    assert "slowest: decode (chat@3), 1,600 ms of 2,000 ms (80%)" in drawn
    listed = trace("--slow", "--limit", "5").stdout
    assert listed.index("my-chat") < listed.index(RAG)
    stored(state, [replace(span, trace_id="ef" * 16) for span in chat()])
    failed = trace("--last", "--errors").stdout
    assert "chat@3  interactive  BackendFailed" in failed
    assert "  error BackendFailed: gone" in failed


def test_hostile_words_steer_no_terminal(trace: Trace, state: Path) -> None:
    evil = "\x1b[31m \x1b]0;pwned\x07 \r\n\x08 \x9b2J \u202e \x00 \x7f"
    stored(state, chat(evil))
    for arguments in ([], ["my-chat"], ["--json"], ["my-chat", "--json"], ["nobody\x1b[31m"]):
        done = trace(*arguments)
        assert not CONTROL.search(done.stdout + done.stderr), (arguments, done.stdout, done.stderr)
    stored(state / "markup", chat("[red][/]"))
    assert "decode[red][/]" in trace("my-chat", ZOOSERVE_STATE_DIR=str(state / "markup")).stdout


def test_in_a_pipe_that_knows_ascii_alone_it_draws_in_ascii(trace: Trace, state: Path) -> None:
    stored(state, rag_query())
    done = trace(RAG, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "####" in done.stdout


def test_as_json_every_span_is_told(trace: Trace, state: Path) -> None:
    stored(state, rag_query())
    told = json.loads(trace(RAG, "--json").stdout)
    assert told["slowest"]["stage"] == "embed_encoder@1"
    assert (told["request"]["model"], len(told["spans"])) == ("rag_query", 12)
    assert {"name", "model", "depth", "start_ns", "end_ns", "attributes", "events"} <= told["spans"][0].keys()
    assert json.loads(trace("--json").stdout)[0]["request_id"] == RAG


def test_ten_thousand_spans_are_drawn_as_the_longest_and_the_rest_is_counted(trace: Trace, state: Path) -> None:
    root = root_of("my-bulk", "12" * 16, 10**18, 10**18 + 20_000 * MS, model="embed", model_version="1")
    spans = [root]
    for number in range(1, 10_001):
        began_ns = 10**18 + number * MS
        spans.append(
            Span(root.trace_id, f"{number:016x}", "a" * 16, "infer", began_ns, began_ns + (number % 5 + 1) * MS)
        )
    stored(state, spans)
    drawn = trace("my-bulk").stdout
    assert drawn.count("infer embed@1") == 199
    assert "9,801 shorter spans are left out (--json has all)" in drawn


def test_spans_whose_parent_is_missing_stand_at_the_end_and_clocks_may_differ(trace: Trace, state: Path) -> None:
    spans = rag_query()
    lost = Span(spans[0].trace_id, "f" * 16, "e" * 16, "lost", spans[0].start_ns, spans[0].start_ns + MS)
    early = Span(spans[0].trace_id, "9" * 16, "a" * 16, "early", spans[0].start_ns - 500 * MS, spans[0].start_ns)
    late = Span(spans[0].trace_id, "8" * 16, "a" * 16, "backwards", spans[0].end_ns + MS, spans[0].start_ns)
    stored(state, [*spans, lost, early, late])
    done = trace(RAG)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines.index("spans whose parent did not arrive:") < next(
        place for place, line in enumerate(lines) if "lost" in line
    )
    assert any("backwards" in line and "0.00 ms" in line for line in lines)


def test_of_a_trace_with_several_requests_each_is_drawn_and_one_can_be_asked_for(trace: Trace, state: Path) -> None:
    trace_id = "34" * 16
    first = root_of("first", trace_id, 10**18, 10**18 + 5 * MS, model="embed", model_version="1")
    second = root_of("second", trace_id, 10**18 + 10**10, 10**18 + 10**10 + MS, model="rerank", model_version="2")
    below = Span(trace_id, "d" * 16, "c" * 16, "parse", second.start_ns, second.end_ns)
    stored(state, [first, replace(second, span_id="c" * 16), below])
    whole = trace(trace_id).stdout
    assert "2 requests" in whole
    assert whole.count("slowest: ") == 2
    drawn = trace("second").stdout
    assert "parse rerank@2" in drawn
    assert "embed@1" not in drawn


def test_queueing_is_told_from_computing(trace: Trace, state: Path) -> None:
    root = root_of("queued", "56" * 16, 0, 100 * MS, model="embed", model_version="1")
    said = {"triton.model_name": "embed_encoder", "triton.model_version": "7"}
    stage = Span(
        root.trace_id, "b" * 16, "a" * 16, "embed_encoder", 0, 95 * MS, said, events=(Event("QUEUE_START", 0),)
    )
    compute = Span(root.trace_id, "c" * 16, "b" * 16, "compute", 80 * MS, 95 * MS)
    stored(state, [root, stage, compute])
    assert "slowest: embed_encoder@7, queue, 80 ms of 100 ms (80%)" in trace("queued").stdout


def test_without_a_log_it_says_to_start_a_platform(trace: Trace, state: Path) -> None:
    for arguments in ([], ["--last"], ["my-chat"], ["--slow"]):
        done = trace(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert "`zooserve up`" in done.stderr
        assert done.stderr.count("\n") == 1
    assert not state.exists()


def test_an_unknown_id_says_what_ids_look_like_and_how_long_traces_are_kept(trace: Trace, state: Path) -> None:
    stored(state, rag_query())
    done = trace("nobodys-request")
    assert (done.returncode, done.stdout) == (1, "")
    assert "'nobodys-request'" in done.stderr
    assert "x-request-id" in done.stderr
    assert "32 hexadecimal digits" in done.stderr
    assert "forgotten first" in done.stderr


@pytest.mark.parametrize("name", [b"\xff\xfe", b"half \xc3", b"\x1b[2J"], ids=["no text", "half a character", "codes"])
def test_an_id_that_is_no_text_is_as_unknown_as_any(trace: Trace, state: Path, name: bytes) -> None:
    stored(state, chat())
    done = trace(os.fsdecode(name))
    assert done.returncode == 1
    assert done.stderr.startswith("No request or trace ")
    assert not CONTROL.search(done.stderr)


@pytest.mark.parametrize("junk", [b"", b"hello", os.urandom(10_000)])
def test_a_file_that_is_no_log_is_told_in_a_line(trace: Trace, state: Path, junk: bytes) -> None:
    state.mkdir()
    (state / "traces.db").write_bytes(junk)
    done = trace()
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "There is no trace log" in done.stderr
    assert (state / "traces.db").read_bytes() == junk


def test_an_empty_log_and_one_without_failures_say_so(trace: Trace, state: Path) -> None:
    stored(state, rag_query())
    assert "No request that failed is known." in trace("--errors").stderr
    assert trace("--errors").returncode == 1
    stored(state.parent / "other")
    assert trace("--last", RAG).returncode == 2


def test_a_request_that_ended_just_now_is_waited_for(trace: Trace, state: Path) -> None:
    """The platform that runs is this process: its state says so."""
    stored(state, chat())
    folder = StateFolder(state)
    folder.create()
    folder.write_state(unplanned("ready"))
    asked = subprocess.Popen(
        [sys.executable, "-m", "zooserve_cli", "trace", RAG],
        env={**os.environ, "ZOOSERVE_STATE_DIR": str(state)},
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(1.5)
    stored(state, rag_query())
    assert "slowest: embed_encoder@1" in asked.communicate()[0]
    assert asked.returncode == 0


def test_what_looks_like_markup_or_an_emoji_is_listed_as_it_is(trace: Trace, state: Path) -> None:
    stored(state, [root_of("job:bug:1", "78" * 16, 0, MS, model="[red]x[/]", model_version="1")])
    assert trace().stdout.splitlines()[1].split()[-7:-4] == ["job:bug:1", "[red]x[/]@1", "interactive"]
