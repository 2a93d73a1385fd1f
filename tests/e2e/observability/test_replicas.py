"""One scrape address over two replicas: exact, also when one is killed; and the last spans are not lost."""

import concurrent.futures
import re
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import httpx
import psutil
import pytest

pytestmark = pytest.mark.e2e

BODY = {"model": "language", "input": ["What language is this?"]}
COUNTERS = ("zooserve_requests_total", "zooserve_tokens_total", "zooserve_request_duration_seconds_count")


@pytest.fixture(scope="module")
def pair(platforms_of_module: Callable[..., Any]) -> Any:
    """A platform with two replicas, and a model that starts quickly."""
    platform = platforms_of_module(ZOOSERVE_MODELS="language", ZOOSERVE_ROUTER__REPLICAS="2")
    platform.up()
    return platform


def replicas(platform: Any) -> list[psutil.Process]:
    processes = psutil.Process(platform.state.pid).children(recursive=True)
    return [each for each in processes if "ray::ServeReplica" in " ".join(each.cmdline())]


def page(platform: Any) -> str:
    """The metrics page; asked again where a replica has just been killed."""
    while True:
        try:
            answer = httpx.get(f"{platform.url}/metrics", timeout=30)
        except httpx.HTTPError:
            continue
        if answer.status_code == 200:
            return answer.text


def value(text: str, series: str, **labels: str) -> float:
    """The sum of a series' values with these labels."""
    total = 0.0
    for found, number in re.findall(rf"^{series}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE):
        own = dict(re.findall(r'(\w+)="([^"]*)"', found))
        if labels.items() <= own.items():
            total += float(number)
    return total


def ok(text: str) -> float:
    return value(text, "zooserve_requests_total", model="language", outcome="ok")


def classify(platform: Any, request_id: str = "") -> str:
    headers = {"x-request-id": request_id} if request_id else {}
    try:
        answer = httpx.post(f"{platform.url}/v1/classify", json=BODY, headers=headers, timeout=30)
    except httpx.HTTPError:
        return "broken"
    return "ok" if answer.status_code == 200 else "refused"


def at_once(platform: Any, requests: int) -> Counter[str]:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return Counter(pool.map(lambda _: classify(platform), range(requests)))


def test_the_page_counts_every_request_once_whichever_replica_answered(pair: Any) -> None:
    before = ok(page(pair))
    assert at_once(pair, 200) == {"ok": 200}
    # Each of the two answers for both.
    assert {ok(page(pair)) for _ in range(8)} == {before + 200}
    assert value(page(pair), "zooserve_requests_in_flight") == 1  # the scrape itself


def test_a_replica_killed_under_load_takes_no_count_with_it(pair: Any) -> None:
    before = ok(page(pair))
    seen: list[dict[str, float]] = []
    loaded = threading.Event()

    def watch() -> None:
        while not loaded.is_set():
            text = page(pair)
            seen.append({name: value(text, name) for name in COUNTERS})

    watching = threading.Thread(target=watch)
    watching.start()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        load = pool.submit(at_once, pair, 1500)
        while ok(page(pair)) < before + 300:
            time.sleep(0.05)  # between two looks
        killed = replicas(pair)[0]
        killed.send_signal(signal.SIGKILL)
        outcomes = load.result()
    loaded.set()
    watching.join()
    counted = ok(page(pair)) - before
    # A request whose answer broke off may have been counted a moment before.
    assert outcomes["ok"] <= counted <= outcomes["ok"] + outcomes["broken"]
    assert outcomes["ok"] > 1000
    for name in COUNTERS:
        values = [each[name] for each in seen]
        assert values == sorted(values), f"{name} went down"
    assert value(page(pair), "zooserve_requests_in_flight") == 1  # the scrape itself
    left = {file.name for file in pair.folder.metrics.glob("*.db")}
    assert not {name for name in left if name.endswith(f"_{killed.pid}.db")}
    assert "counter_past.db" in left


def test_counts_are_exact_again_once_the_replica_is_replaced(pair: Any) -> None:
    while len(replicas(pair)) < 2:
        time.sleep(0.2)  # between two looks; Ray replaces it
    before = ok(page(pair))
    outcomes = at_once(pair, 200)
    assert ok(page(pair)) == before + outcomes["ok"]
    assert outcomes["ok"] > 0


def test_the_last_spans_before_the_end_are_in_the_trace_log(pair: Any) -> None:
    last = [f"last-{number}" for number in range(12)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        outcomes = Counter(pool.map(lambda name: classify(pair, name), last))
    assert outcomes == {"ok": 12}
    assert pair.down().returncode == 0
    with closing(sqlite3.connect(pair.folder.traces_file)) as log:
        known = {name for (name,) in log.execute("SELECT request_id FROM requests")}
    assert set(last) <= known
