"""Where a request's time went."""

from typing import Any

import pytest

from zooserve_observability.spans import Event, Span
from zooserve_observability.trace_log.stages import Node, slowest_of, trees

TRACE = "ab" * 16
MS = 1_000_000


def span(name: str, number: int, above: int | None, began_ms: float, ended_ms: float, **said: Any) -> Span:
    parent = "" if above is None else f"{above:016x}"
    events = (Event("QUEUE_START", round(said.pop("queue_ms") * MS)),) if "queue_ms" in said else ()
    attributes = {key.replace("_", ".", 1): value for key, value in said.items()}
    return Span(
        TRACE, f"{number:016x}", parent, name, round(began_ms * MS), round(ended_ms * MS), attributes, events=events
    )


def model(name: str, number: int, above: int, began_ms: float, ended_ms: float, computes_at: float) -> list[Span]:
    said = {"triton_model_name": name, "triton_model_version": "2"}
    return [
        span(name, number, above, began_ms, ended_ms, queue_ms=began_ms, **said),
        span("compute", number + 100, number, computes_at, ended_ms),
    ]


def told(spans: list[Span]) -> tuple[str, float]:
    slowest = slowest_of(trees(spans)[0])
    return str(slowest), slowest.spent_ns / MS


def test_computing_and_queueing_of_a_stage_are_told_apart() -> None:
    root = span("zooserve.request", 1, None, 0, 100)
    assert told([root, *model("encoder", 2, 1, 5, 95, computes_at=15)]) == ("encoder@2, compute", 80)
    assert told([root, *model("encoder", 2, 1, 5, 95, computes_at=75)]) == ("encoder@2, queue", 70)


def test_of_stages_that_run_side_by_side_only_the_one_that_is_waited_for_counts() -> None:
    root = span("zooserve.request", 1, None, 0, 100)
    short = model("short", 2, 1, 0, 60, computes_at=0)
    long = model("long", 3, 1, 1, 61, computes_at=1)
    last = model("last", 4, 1, 61, 100, computes_at=61)
    assert told([root, *short, *long, *last]) == ("long@2, compute", 60)


def test_a_stage_that_runs_in_several_chunks_counts_as_one() -> None:
    root = span("zooserve.request", 1, None, 0, 100)
    chunks = [
        part for place in range(4) for part in model("encoder", 2 + place, 1, 20 * place, 20 * place + 20, 20 * place)
    ]
    whole = [root, span("other", 90, 1, 80, 100), *chunks]
    slowest = slowest_of(trees(whole)[0])
    assert (str(slowest), slowest.spent_ns, slowest.whole_ns, slowest.spans) == (
        "encoder@2, compute",
        80 * MS,
        100 * MS,
        4,
    )


def test_time_that_no_span_below_covers_is_the_requests_own() -> None:
    assert told([span("zooserve.request", 1, None, 0, 100), span("parse", 2, 1, 0, 1)]) == (
        "zooserve.request, itself",
        99,
    )


def test_a_phase_of_the_router_is_named_with_its_model() -> None:
    chat = {"zooserve_model": "chat", "zooserve_model_version": "3"}
    spans = [
        span("zooserve.request", 1, None, 0, 100, **chat),
        span("decode", 2, 1, 10, 90, **chat),
    ]
    assert told(spans) == ("decode (chat@3)", 80)


def test_a_call_that_names_no_version_of_tritons_model_is_told_by_the_public_one() -> None:
    said = {"triton_model_name": "embed_bulk", "zooserve_model": "embed", "zooserve_model_version": "4"}
    (tree,) = trees([span("infer", 1, None, 0, 9, **said)])
    assert tree.model == "embed@4"
    (tree,) = trees([span("infer", 1, None, 0, 9, triton_model_name="embed_bulk")])
    assert tree.model == "embed_bulk"


def test_clocks_that_differ_do_not_count_time_twice() -> None:
    root = span("zooserve.request", 1, None, 0, 100)
    assert told([root, *model("early", 2, 1, -500, 40, computes_at=-500)])[1] <= 100
    name, spent_ms = told([root, *model("long", 2, 1, -500, 900, computes_at=-500)])
    assert (name, spent_ms) == ("long@2, compute", 100)


def test_a_real_export_of_triton_names_its_encoder(triton_spans: list[Span]) -> None:
    root = next(span for span in triton_spans if span.name == "InferRequest")
    (tree,) = trees(triton_spans)
    assert tree.span is root
    slowest = slowest_of(tree)
    assert str(slowest) == "embed_encoder@1, compute"
    assert slowest.spent_ns == pytest.approx(10.71356 * MS, rel=0.01)
    stages = {node.span.name: node for node in tree.walk() if node.span.name != "compute"}
    queue = stages["language_encoder"].queue
    assert queue is not None
    assert queue[1] - queue[0] == pytest.approx(0.194 * MS, rel=0.01)
    assert {node.model for node in tree.walk()} >= {"rag_query@1", "injection_head@1", "rag_query_tokenizer@1"}
    assert [node.model for node in stages["embed_encoder"].below] == ["embed_encoder@1"]


def shape(roots: list[Node]) -> list[tuple[str, int]]:
    return [(node.span.name, node.depth) for root in roots for node in root.walk()]


def test_spans_without_their_parents_begin_trees_and_a_span_that_came_twice_counts_once() -> None:
    spans = [span("b", 2, 1, 1, 2), span("a", 1, None, 0, 9), span("lost", 3, 77, 4, 5), span("b", 2, 1, 1, 2)]
    assert shape(trees(spans)) == [("a", 0), ("b", 1), ("lost", 0)]


def test_circles_of_parents_end() -> None:
    spans = [span("a", 1, 3, 0, 9), span("b", 2, 1, 1, 8), span("c", 3, 2, 2, 7), span("self", 4, 4, 3, 5)]
    assert shape(trees(spans)) == [("a", 0), ("b", 1), ("c", 2), ("self", 0)]
    for root in trees(spans):
        assert slowest_of(root).spent_ns > 0


def test_ten_thousand_spans_in_a_chain_or_a_row_are_no_burden() -> None:
    chain = [span("s", number, number - 1 or None, number, 20_001 - number) for number in range(1, 10_001)]
    assert len(shape(trees(chain))) == 10_000
    assert slowest_of(trees(chain)[0]).whole_ns == 19_999 * MS
    row = [span("root", 1, None, 0, 10_000), *(span("s", number, 1, number, number + 1) for number in range(2, 10_000))]
    assert slowest_of(trees(row)[0]).spans == 9998
