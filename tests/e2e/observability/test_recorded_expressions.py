"""What needs a GPU, TensorRT-LLM or vLLM, asked of a real Prometheus that scrapes pages recorded elsewhere.

The GPU's are replayed as an H200 gave them. Of the others, names and labels are the projects' own, and their values
move here, so that an expression of them can move too.
"""

import itertools
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from zlib import crc32

import pytest

from zooserve_observability.answered import Prometheus, Span, asked_by_dashboards, asked_by_rules, faults
from zooserve_observability.rules.telemetry import RECORDINGS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "tests" / "observability" / "expositions"
PAGES = {name: (RECORDED / f"{name}.txt").read_text() for name in ("tensorrt_llm", "vllm", "qdrant", "collector")}
H200 = [file.read_text() for file in sorted((RECORDED / "h200").glob("*.txt"))]
ASKED = [
    *asked_by_dashboards(ROOT / "observability" / "grafana" / "dashboards", window="15s"),
    *asked_by_rules(ROOT / "observability" / "prometheus" / "rules"),
]
_WATCHING = next(each for each in RECORDINGS if each.record == "zooserve:observer:up")
CONSTANT = {
    "max by (gpu_uuid) (nv_gpu_memory_total_bytes{})": "the memory that a GPU has",
    **dict.fromkeys((_WATCHING.expr, _WATCHING.record), "a page that is recorded never goes"),
}
"""Expressions that do not change by nature, and why."""
REQUIRING = [replace(each, may_be_constant=each.expression in CONSTANT) for each in ASKED if each.requires]
RULES = ROOT / "observability" / "prometheus" / "rules"
WATCHED_S = 20.0
_SAMPLE = re.compile(r"^(?P<series>\S+?(?:\{.*\})?) (?P<value>\S+)$")
_LE = re.compile(r',?le="([^"]+)"')


class Replayed:
    """Pages of one server, each for as many looks as there were seconds between two of them."""

    def __init__(self, pages: Sequence[str]) -> None:
        self._pages = itertools.cycle(page for page in pages for _ in range(3))

    def text(self) -> str:
        """The one whose time it is."""
        return next(self._pages)


class Moving:
    """A page whose values are others at each look: counters grow, gauges swing, what is observed gets slower."""

    def __init__(self, page: str) -> None:
        self._lines = page.splitlines()
        self._kinds = {words[2]: words[3] for words in map(str.split, self._lines) if words[:2] == ["#", "TYPE"]}
        self._looks = 0

    def text(self) -> str:
        """It, now."""
        self._looks += 1
        return "".join(f"{self._moved(line)}\n" for line in self._lines)

    def _moved(self, line: str) -> str:
        if line.startswith("#") or not (sample := _SAMPLE.match(line)):
            return line
        series, value = sample["series"], float(sample["value"])
        name = series.partition("{")[0]
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        if self._kinds.get(family) == "histogram":
            return f"{series} {value + self._observed(series)}"
        if self._kinds.get(name) == "counter":
            return f"{series} {value * (1 + 0.02 * self._looks)}"
        return f"{series} {value * (1 + 0.02 * ((self._looks + crc32(series.encode())) % 7))}"

    def _observed(self, series: str) -> int:
        """Three observations a look: quick ones in even tens of looks, the slowest in odd ones."""
        quick = 3 * sum(look // 10 % 2 == 0 for look in range(self._looks))
        bound = _LE.search(series)
        everything = 3 * self._looks
        return everything if bound is None or bound[1] == "+Inf" or float(bound[1]) > 5 else quick


def scraped(
    pages: Mapping[str, Moving | Replayed],
    start_prometheus: Callable[[str], str],
    serve: Callable[[type[BaseHTTPRequestHandler]], str],
) -> tuple[Prometheus, Span]:
    """A Prometheus that has watched these pages for a while."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages[self.path.strip("/")].text().encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    address = serve(Pages).removeprefix("http://")
    jobs = "".join(
        f"  - {{ job_name: {name}, metrics_path: /{name}, static_configs: [{{ targets: ['{address}'] }}] }}\n"
        for name in pages
    )
    head = (
        f"global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{RULES}/*.yml']\nscrape_configs:\n"
    )
    prometheus = Prometheus(start_prometheus(head + jobs))
    began = time.time()
    time.sleep(WATCHED_S)  # a rate needs some samples
    assert set(prometheus.targets().values()) == {"up"}
    return prometheus, Span(began + 3, time.time(), 1.0)


def recorded(gpu: Sequence[str] = H200) -> dict[str, Moving | Replayed]:
    """Every page, the GPU's as they are given."""
    return {"gpu": Replayed(gpu), **{name: Moving(page) for name, page in PAGES.items()}}


def test_every_expression_that_requires_something_has_data_on_the_recorded_pages(
    start_prometheus: Callable[[str], str], serve: Callable[[type[BaseHTTPRequestHandler]], str]
) -> None:
    sys.stdout.write(f"asked of recorded pages, {len(REQUIRING)} of {len(ASKED)}:\n")
    sys.stdout.writelines(f"  {each.requires}: {each.where}\n" for each in REQUIRING)
    assert {each.requires for each in REQUIRING} <= recorded().keys()
    prometheus, span = scraped(recorded(), start_prometheus, serve)
    found = faults(prometheus, REQUIRING, span)
    assert not found, "\n".join(map(str, found))


def test_a_series_that_is_renamed_is_found_with_every_expression_that_asks_for_it(
    start_prometheus: Callable[[str], str], serve: Callable[[type[BaseHTTPRequestHandler]], str]
) -> None:
    renamed = [page.replace("nv_gpu_memory_used_bytes", "nv_gpu_memory_in_use_bytes") for page in H200]
    prometheus, span = scraped(recorded(renamed), start_prometheus, serve)
    found = faults(prometheus, REQUIRING, span)
    names = ("nv_gpu_memory_used_bytes", "zooserve:gpu_memory:ratio")
    hit = {each.expression for each in REQUIRING if any(name in each.expression for name in names)}
    assert len(hit) > 2
    assert {fault.asked.expression for fault in found} == hit
    assert {fault.reason for fault in found} == {"no data"}
