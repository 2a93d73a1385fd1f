"""Spans on their way out of a process: to a collector that is well, ill, hangs, resets, or is not there."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client import CollectorRegistry

from zooserve.processes.ports import reserved_ports
from zooserve.settings import TracingSettings
from zooserve_observability.span_export import SpanExport, otlp_exporter
from zooserve_observability.trace_metrics import TraceMetrics
from zooserve_observability.tracing import Tracing

HEAD = TracingSettings(sampling="head", ratio=1)


class Collector:
    """A collector over a real socket: answers with a status, resets, or says nothing until it is let go."""

    def __init__(self, answer: int | str) -> None:
        self.answer = answer
        self.names: list[str] = []
        self.asked = threading.Event()
        self.let_go = threading.Event()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Its address of traces."""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
                collector.names += [
                    span.name for a in request.resource_spans for b in a.scope_spans for span in b.spans
                ]
                collector.asked.set()
                if collector.answer == "hangs":
                    collector.let_go.wait()
                if collector.answer == "resets":
                    # With a second of 0 the socket is closed by a reset.
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                if not isinstance(collector.answer, int):
                    self.close_connection = True
                    return
                self.send_response(collector.answer)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *values: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces"
        finally:
            self.let_go.set()
            server.shutdown()
            thread.join()
            server.server_close()


class Exported:
    """An export to that address, and what it counts."""

    def __init__(self, url: str, most: int = 4096, timeout_s: float = 5.0, last_s: float = 2.0) -> None:
        self.registry = CollectorRegistry()
        self.export = SpanExport(otlp_exporter(url, timeout_s), TraceMetrics(self.registry), most=most, last_s=last_s)
        self.tracing = Tracing.by(HEAD, self.export)

    def requests(self, count: int) -> None:
        """So many requests of one span each."""
        for number in range(count):
            self.tracing.request({}, {"number": number}).root.end()

    @property
    def taken(self) -> float:
        return self.registry.get_sample_value("zooserve_spans_exported_total", {"exporter": "router"}) or 0.0

    def dropped(self, reason: str) -> float:
        labels = {"exporter": "router", "reason": reason}
        return self.registry.get_sample_value("zooserve_spans_dropped_total", labels) or 0.0

    def until(self, holds: Callable[[], bool]) -> None:
        """Look again and again; the test's own timeout bounds it."""
        pause = threading.Event()
        while not holds():
            pause.wait(0.01)


def test_a_collector_that_is_well_gets_every_span() -> None:
    collector = Collector(200)
    with collector.serving() as url:
        exported = Exported(url)
        with exported.export.exporting():
            exported.requests(1300)
    assert len(collector.names) == exported.taken == 1300
    assert exported.dropped("failed") == exported.dropped("queue_full") == 0


@pytest.mark.parametrize("answer", [500, 503, 400, "resets"])
def test_what_an_ill_collector_refuses_is_counted_and_told_once(answer: int | str, caplog) -> None:
    collector = Collector(answer)
    with collector.serving() as url, caplog.at_level(logging.WARNING):
        exported = Exported(url, timeout_s=0.2)
        with exported.export.exporting():
            exported.requests(10)
            exported.until(lambda: exported.dropped("failed") == 10)
            exported.requests(5)
            exported.until(lambda: exported.dropped("failed") == 15)
    assert exported.taken == 0
    assert [record.message.split(",")[0] for record in caplog.records] == [
        "spans were not taken by whoever collects them"
    ]


def test_a_collector_that_is_not_there_costs_its_spans_and_nothing_else(caplog) -> None:
    (nobody,) = reserved_ports(1)
    exported = Exported(f"http://127.0.0.1:{nobody}/v1/traces", timeout_s=0.2)
    with exported.export.exporting(), caplog.at_level(logging.WARNING):
        exported.requests(7)
        exported.until(lambda: exported.dropped("failed") == 7)
    assert len(caplog.records) == 1


def test_spans_that_wait_for_a_hanging_collector_are_bounded_and_the_rest_is_counted(caplog) -> None:
    collector = Collector("hangs")
    with collector.serving() as url, caplog.at_level(logging.WARNING):
        exported = Exported(url, most=20, timeout_s=60, last_s=0.05)
        with exported.export.exporting():
            exported.requests(1)
            collector.asked.wait()
            exported.requests(1000)  # whoever ends a span is not held up: this returns
            assert exported.dropped("queue_full") == 980
            assert [record.message for record in caplog.records] == [
                "more than 20 spans wait for their exporter: new ones are dropped"
            ]
        # At the end of the process what waits and what is on its way are lost, and counted too.
        assert exported.dropped("failed") == 20 + 1


def test_a_hanging_collector_does_not_hold_up_the_end_of_a_process() -> None:
    collector = Collector("hangs")
    with collector.serving() as url:
        # An export waits for an hour: only the bound on the end can end the block within this test's timeout.
        exported = Exported(url, timeout_s=3600, last_s=0.05)
        with exported.export.exporting():
            exported.requests(1)
            collector.asked.wait()
        assert not collector.let_go.is_set()


def test_a_collector_that_is_well_again_gets_what_comes_then() -> None:
    collector = Collector(500)
    with collector.serving() as url:
        exported = Exported(url, timeout_s=0.2)
        with exported.export.exporting():
            exported.requests(3)
            exported.until(lambda: exported.dropped("failed") == 3)
            collector.answer = 200
            exported.requests(2)
            exported.until(lambda: exported.taken == 2)


def test_what_is_not_sampled_is_neither_exported_nor_lost() -> None:
    collector = Collector(200)
    with collector.serving() as url:
        exported = Exported(url)
        with exported.export.exporting():
            parent = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}
            exported.tracing.request(parent).root.end()
            exported.requests(1)
    assert exported.taken == len(collector.names) == 1


def test_losses_stand_at_0_from_the_start_so_that_the_first_is_a_rise() -> None:
    registry = Exported("http://127.0.0.1:9/v1/traces").registry
    lost = [
        registry.get_sample_value("zooserve_spans_dropped_total", {"exporter": "router", "reason": reason})
        for reason in ("queue_full", "failed")
    ]
    assert lost == [0, 0]


def test_a_proxy_of_the_environment_gets_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    collector, proxy = Collector(200), Collector(200)
    with collector.serving() as url, proxy.serving() as other:
        monkeypatch.setenv("http_proxy", other)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        exported = Exported(url)
        with exported.export.exporting():
            exported.requests(3)
    assert proxy.names == []
    assert len(collector.names) == exported.taken == 3


def test_a_compression_of_the_environment_that_the_trace_log_does_not_take_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "deflate")
    collector = Collector(200)
    with collector.serving() as url:
        exported = Exported(url)
        with exported.export.exporting():
            exported.requests(3)
    assert len(collector.names) == exported.taken == 3


def test_headers_that_cannot_be_read_are_not_quoted_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "hunter2")
    with caplog.at_level(logging.WARNING):
        otlp_exporter("http://127.0.0.1:9/v1/traces")
    assert "hunter2" not in caplog.text
