"""Spans of requests as the router and Triton send them, and what a test asks of metrics."""

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from zooserve_observability.spans import Span, read_spans
from zooserve_observability.trace_metrics import TraceMetrics

MS = 1_000_000
Request = Callable[..., list[Span]]


class Counted:
    """Traces' metrics, and what they have counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = TraceMetrics(self.registry)

    def exported(self, exporter: str) -> float | None:
        """Spans that were taken."""
        return self.registry.get_sample_value("zooserve_spans_exported_total", {"exporter": exporter})

    def dropped(self, exporter: str, reason: str) -> float | None:
        """Spans that were lost."""
        labels = {"exporter": exporter, "reason": reason}
        return self.registry.get_sample_value("zooserve_spans_dropped_total", labels)

    def decided(self, decision: str) -> float | None:
        """Traces of this decision."""
        return self.registry.get_sample_value("zooserve_traces_decided_total", {"decision": decision})

    def bytes_of(self, place: str) -> float | None:
        """What the log takes there."""
        return self.registry.get_sample_value("zooserve_trace_log_bytes", {"place": place})


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def request_of() -> Request:
    """A request's spans: its root, and one stage below."""

    def made(
        number: int,
        *,
        took_ms: float = 10,
        outcome: str = "ok",
        error: str = "",
        first_token_s: float | None = None,
        began_ns: int = 10**18,
        trace_id: str = "",
        span_id: str = "",
    ) -> list[Span]:
        trace_id, span_id = trace_id or f"{number:032x}", span_id or f"{2 * number + 1:016x}"
        said = {
            "zooserve.request_id": f"req_{number}",
            "zooserve.model": "embed",
            "zooserve.model_version": "1",
            "zooserve.slo_class": "interactive",
            "zooserve.outcome": outcome,
            "http.route": "/v1/embeddings",
        }
        if first_token_s is not None:
            said["zooserve.time_to_first_token_s"] = str(first_token_s)
        ended_ns = began_ns + round(took_ms * MS)
        stage = {"triton.model_name": "embed_encoder", "triton.model_version": "1"}
        return [
            Span(trace_id, span_id, "", "zooserve.request", began_ns, ended_ns, said, error, 2, service="router"),
            Span(
                trace_id, f"{2 * number + 2:016x}", span_id, "embed_encoder", began_ns + MS, ended_ns, stage,
                service="triton",
            ),
        ]  # fmt: skip

    return made


@pytest.fixture
def triton_spans() -> list[Span]:
    """What Triton 2.51 exported of one rag_query."""
    return read_spans((Path(__file__).parent / "triton_rag_query.json").read_bytes())
