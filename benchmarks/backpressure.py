"""Ten times the clients that the zoo keeps up with, on rag_query: is every queue below its bound, does anybody hang?

    python benchmarks/backpressure.py --state-dir ~/.local/state/zooserve [--short] [--json]

The clients do not wait when they are refused: a refusal costs the router little, and that is what the load shows.
While it runs, the requests that wait in front of every stage are read from the zoo's metrics. Afterwards one request
must be answered at once.
"""

import argparse
import asyncio
import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from zooserve.processes.state import StateFolder
from zooserve.settings import Settings

PENDING = re.compile(r'nv_inference_pending_request_count\{model="([^"]+)",version="[^"]*"\} (\d+)')
POLL_S = 0.05
PATIENCE_S = 120.0
"""Who waits longer hangs: the 480 that are admitted take a quarter of a minute on two busy cores."""


@dataclass
class Result:
    """One run, measured."""

    clients: int
    seconds: float
    answers: Counter[int] = field(default_factory=Counter)
    """By status; 0 is no answer."""
    unadvised: int = 0
    """Refusals without a Retry-After."""
    longest_s: float = 0.0
    looks: int = 0
    """How often the queues were looked at."""
    most_waiting: dict[str, int] = field(default_factory=dict)
    bounds: dict[str, int] = field(default_factory=dict)
    afterwards: int = 0
    """The status of one request once the load is over."""

    @property
    def holds(self) -> bool:
        """Whether every queue stayed below its bound, everybody was answered, and refusals said when to come back."""
        below = all(self.most_waiting.get(model, 0) < bound for model, bound in self.bounds.items())
        return below and set(self.answers) <= {200, 429} and not self.unadvised and self.afterwards == 200


async def client(http: httpx.AsyncClient, number: int, until: float, result: Result) -> None:
    """Asks again as soon as it is answered, or refused."""
    asked = 0
    while time.monotonic() < until:
        asked += 1
        began = time.monotonic()
        try:
            answer = await http.post("/v1/rag_query", json={"input": f"where is page {number} of file {asked}?"})
        except httpx.TransportError:
            result.answers[0] += 1
            continue
        result.answers[answer.status_code] += 1
        result.longest_s = max(result.longest_s, time.monotonic() - began)
        if answer.status_code == 429:
            result.unadvised += "retry-after" not in answer.headers
            await asyncio.sleep(0.05)


def watch_queues(metrics: str, result: Result, over: threading.Event) -> None:
    """Keep the most that waited in front of each stage; in a thread, which the clients' loop cannot starve."""
    with httpx.Client(timeout=PATIENCE_S) as http:
        while not over.wait(POLL_S):
            text = http.get(f"http://{metrics}/metrics").text
            result.looks += 1
            for model, waiting in PENDING.findall(text):
                result.most_waiting[model] = max(result.most_waiting.get(model, 0), int(waiting))


async def run(router: str, metrics: str, clients: int, seconds: float, bounds: Mapping[str, int]) -> Result:
    """The load, and the request after it."""
    result = Result(clients, seconds, bounds=dict(bounds))
    limits = httpx.Limits(max_connections=clients + 1)
    async with httpx.AsyncClient(base_url=router, timeout=PATIENCE_S, limits=limits) as http:
        over = threading.Event()
        watch = asyncio.create_task(asyncio.to_thread(watch_queues, metrics, result, over))
        until = time.monotonic() + seconds
        await asyncio.gather(*(client(http, number, until, result) for number in range(clients)))
        over.set()
        await watch
        result.afterwards = (await http.post("/v1/rag_query", json={"input": "and now?"})).status_code
    return result


def bounds_of(repository: Path) -> dict[str, int]:
    """Every stage whose queue has a bound."""
    found = {
        file.parent.name: re.search(r"max_queue_size: (\d+)", file.read_text())
        for file in repository.glob("*/config.pbtxt")
    }
    return {name: int(bound[1]) for name, bound in sorted(found.items()) if bound}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state-dir", type=Path, default=None, help="of the platform that runs")
    parser.add_argument("--clients", type=int, default=1280, help="128 keep every core busy; ten times that")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--short", action="store_true", help="ten seconds")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    settings = Settings().resolved()
    state = StateFolder(given.state_dir or settings.state_dir).read_state()
    if state is None:
        sys.exit("no platform runs from this state folder: `zooserve up`")
    seconds = 10.0 if given.short else given.seconds
    bounds = bounds_of(settings.zoo_repository)
    result = asyncio.run(run(f"http://{state.router}", state.zoo_metrics, given.clients, seconds, bounds))
    if given.json:
        print(json.dumps({**vars(result), "holds": result.holds}))
    else:
        show(result)
    sys.exit(0 if result.holds else 1)


def show(result: Result) -> None:
    """The run, in a few lines."""
    answers = ", ".join(f"{count:,} x {status or 'no answer'}" for status, count in sorted(result.answers.items()))
    print(f"{result.clients:,} clients for {result.seconds:g} s: {answers}; the slowest took {result.longest_s:.1f} s")
    print(f"the queues were looked at {result.looks} times")
    for model, most in sorted(result.most_waiting.items(), key=lambda item: -item[1])[:5]:
        print(f"  most that waited for {model}: {most} of {result.bounds.get(model, 'no bound')}")
    print(f"afterwards: {result.afterwards}; {'holds' if result.holds else 'DOES NOT HOLD'}")


if __name__ == "__main__":
    main()
