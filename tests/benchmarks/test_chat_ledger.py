"""The ledger of chats: read from a metrics page, and faulted where it does not add up."""

import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from prometheus_client import CollectorRegistry

from zooserve_observability.metrics import RouterMetrics


def loaded(name: str) -> ModuleType:
    """A script of benchmarks/, which is no package."""
    spec = spec_from_file_location(name, Path(__file__).parents[2] / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


chat_ledger = loaded("chat_ledger")
Ledger, faults, ledger_in = chat_ledger.Ledger, chat_ledger.faults, chat_ledger.ledger_in

LABELS = ("chat", "1", "interactive")
GOOD = Ledger(
    requests={"ok": 5, "cancelled": 3, "DeadlineExceeded": 2},
    issued=12,
    ended={"finished": 6, "cancelled": 6},
    wasted={"hang_up": 20},
    output_tokens=100,
)


def test_a_page_of_the_router_is_read_for_one_model() -> None:
    metrics = RouterMetrics(CollectorRegistry())
    for model, outcome in (("chat", "ok"), ("chat", "cancelled"), ("other", "ok")):
        metrics.ended(model, "1", "interactive", outcome, 0.1)
    metrics.read_and_wrote(*LABELS, 7, 11)
    metrics.chat.admitted(LABELS, 3, 0.0)
    metrics.chat.ended(LABELS, "finished", 2)
    metrics.chat.ended(LABELS, "cancelled", 1)
    metrics.chat.wasted(LABELS, "hang_up", 4)
    metrics.chat.room("chat", 50, 1)
    assert ledger_in(metrics.exposition().decode(), "chat") == Ledger(
        requests={"ok": 1, "cancelled": 1},
        issued=3,
        ended={"finished": 2, "cancelled": 1},
        wasted={"hang_up": 4},
        output_tokens=11,
        held_tokens=50,
        waiting=1,
    )


def test_only_what_came_since_counts() -> None:
    before = replace(GOOD, requests={"ok": 4}, issued=2, ended={"finished": 2}, wasted={}, output_tokens=1)
    since = GOOD.since(before)
    assert since.requests == {"ok": 1, "cancelled": 3, "DeadlineExceeded": 2}
    assert (since.issued, since.ended) == (10, {"finished": 4, "cancelled": 6})


def test_what_adds_up_has_no_fault_though_some_requests_never_arrived() -> None:
    assert list(faults(GOOD, sent=11, whole=5, late=2)) == []


@pytest.mark.parametrize(
    ("ledger", "says"),
    [
        (replace(GOOD, issued=13), "13 choices were issued, and 12 have ended"),
        (replace(GOOD, requests={**GOOD.requests, "cancelled": 5}), "12 requests were counted, and 11 were sent"),
        (replace(GOOD, requests={**GOOD.requests, "ok": 4}), "5 answers came whole, and 4"),
        (replace(GOOD, requests={**GOOD.requests, "DeadlineExceeded": 1}), "2 clients were told of a deadline, and 1"),
        (replace(GOOD, wasted={"hang_up": 101}), "101 tokens were wasted of 100"),
        (replace(GOOD, held_tokens=30), "30 tokens are still held"),
        (replace(GOOD, waiting=1), "1 requests wait"),
    ],
)
def test_what_does_not_add_up_is_named(ledger, says) -> None:
    (fault,) = faults(ledger, sent=11, whole=5, late=2)
    assert says in fault
