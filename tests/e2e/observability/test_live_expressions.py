"""Every expression of every dashboard and rule, asked of a real Prometheus over a running platform under load.

What needs a GPU, TensorRT-LLM or vLLM (`requires`) is asked of pages recorded elsewhere: test_recorded_expressions.

The same platform is scraped with the configuration of docker-compose.yml, and the spans that it sends to a collector
are held to those that the rules of observability/otel/collector.yaml were tried on (tests/observability/otel).
"""

import itertools
import json
import math
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import httpx
import psutil
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from ruamel.yaml import YAML

from zooserve.processes.identity import command_of
from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings
from zooserve.triton.installation import find_installation
from zooserve.triton.server import Addresses, TritonServer
from zooserve_cli.plan import own_backends
from zooserve_observability.answered import Asked, Fault, Prometheus, Span, asked_by_dashboards, asked_by_rules, faults
from zooserve_observability.dashboards.committed import Drawn, filled, read
from zooserve_observability.scraping import BESIDE, JOBS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

HERE = Path(__file__).parent
ROOT = Path(__file__).parents[3]
DASHBOARDS = ROOT / "observability" / "grafana" / "dashboards"
WINDOW = "15s"
"""Of rates: some scrapes of `quickly`."""
ASKED = [
    *asked_by_dashboards(DASHBOARDS, WINDOW),
    *asked_by_rules(ROOT / "observability" / "prometheus" / "rules"),
]
PAUSE_S = 6.0
"""Longer than any objective allows, shorter than any patience."""
LATE_S = 3.0
"""More than the objective of a first token, 1.28 s."""
STAGE_KILLS = 10
ROUNDS = 3
"""Of load and trouble: what is rare by nature may not happen in the first."""
SCRAPES_S = 5.0
"""Two of them, as `quickly` has it, and a third that is late."""
LARGEST = {"percentunit": (-math.inf, 10.0), "s": (0.001, 300.0), "µs": (100.0, 300e6), "bytes": (100e3, 10e12)}
"""Between which a panel's largest value is to lie, by its unit: one unit taken for another is seen. A shadow runs after
what is answered, and may for a moment run more than that."""
CONSTANT: dict[str, str] = {}
"""Expressions that do not change by nature, and why; as few as can be."""


@dataclass
class Live:
    """A platform that has been under load, and the Prometheus that watched it."""

    platform: Any
    prometheus: Prometheus
    other_zoo: TritonServer
    access: Path
    began: float = field(default_factory=time.time)
    ended: float = 0.0

    @property
    def span(self) -> Span:
        """From the first scrapes to the end of the last load."""
        return Span(self.began + 2, self.ended, 1.0)

    def live_through(self) -> None:
        """Gentle load, heavy load, trouble, and gentle load again, once it is well."""
        under_load(self.platform, "gentle", 20)
        chat_slowly(self.platform)
        with ThreadPoolExecutor(1) as pool:  # the first request of every kind stands still
            paused = pool.submit(pause, self.platform)
            under_load(self.platform, "heavy", 30)
            paused.result()
        ask(self.other_zoo, 200)
        under_load(self.platform, "gentle", 30, lambda: go_wrong(self.platform, self.access))
        until_well(self.platform)
        under_load(self.platform, "gentle", 10)
        self.ended = time.time()


class Collector(BaseHTTPRequestHandler):
    """An OTLP collector that refuses one of four exports for good. What came last is remembered, refused or not."""

    protocol_version = "HTTP/1.1"
    came: ClassVar[deque[bytes]] = deque(maxlen=200)
    _calls = itertools.count()

    def do_POST(self) -> None:
        self.came.append(self.rfile.read(int(self.headers.get("content-length", 0))))
        self.send_response(400 if next(self._calls) % 4 == 3 else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


class Flaky(BaseHTTPRequestHandler):
    """A server that speaks OpenAI's API, and breaks off every second request before it has answered."""

    protocol_version = "HTTP/1.1"
    _calls = itertools.count()

    def do_GET(self) -> None:
        self._say("application/json", b'{"data": []}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if next(self._calls) % 2:
            self.close_connection = True
            return
        ended = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
        self._say("text/event-stream", f"data: {json.dumps(ended)}\n\ndata: [DONE]\n\n".encode())

    def _say(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


def write_catalogue(path: Path, leaf_port: int, flaky: str = "http://127.0.0.1:9") -> None:
    """One with a canary and a shadow, a model with leaves of which one is dead, and two upstreams: dead, and flaky."""
    subprocess.run([sys.executable, HERE / "zoo_with_releases.py", path], check=True)
    yaml = YAML(typ="safe", pure=True)
    models = yaml.load(path.read_text(encoding="utf-8"))["models"]
    (chat,) = [model for model in models if model["name"] == "chat"]
    chat["backend"] = {**chat["backend"], "max_in_flight": 6}
    beside = {name: value for name, value in chat.items() if name not in ("aliases", "required")}
    leaves = [f"127.0.0.1:{leaf_port}", f"localhost:{leaf_port}", f"127.0.0.1:{reserved_ports(1)[0]}"]
    models += [
        {**beside, "name": "chat_spread", "backend": {"kind": "llmapi", "leaves": leaves, "max_in_flight": 4}},
        upstream("chat_dead", f"http://127.0.0.1:{reserved_ports(1)[0]}/v1"),
        upstream("chat_flaky", f"{flaky}/v1"),
    ]
    with path.open("w", encoding="utf-8") as file:
        yaml.dump({"models": models}, file)


def upstream(name: str, url: str) -> dict[str, Any]:
    """A catalogue entry."""
    return {
        "name": name, "task": "chat", "runs_on": "upstream", "limits": {"max_tokens": 400},
        "backend": {"kind": "openai", "server": "other", "url": url, "max_in_flight": 8},
        "licence": "none", "source": "a test", "description": "An upstream.",
    }  # fmt: skip


def write_repository(path: Path) -> None:
    """The committed one, with two instances of a model, and a warm-up that fails."""
    shutil.copytree(ROOT / "model_repository", path, symlinks=True, copy_function=linked)
    config = path / "zoo" / "language_encoder" / "config.pbtxt"
    replace(config, config.read_bytes().replace(b"count: 1", b"count: 2"))
    replace(path / "zoo" / "classify_tokenizer" / "warmup" / "sentence", b"\2\0\0\0\xff\xfe")


def linked(source: str, target: str) -> None:
    """The same file once more, where the disk is the same."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def replace(file: Path, content: bytes) -> None:
    assert file.read_bytes() != content
    file.unlink()  # it may be the committed one, linked
    file.write_bytes(content)


def process_of(platform: Any, words: str) -> psutil.Process:
    """The newest process of the platform whose command line has these words."""
    processes = psutil.Process(platform.state.pid).children(recursive=True)
    found = [each for each in processes if words in command_of(each.pid)]
    assert found, f"no process with {words}"
    return max(found, key=psutil.Process.create_time)


def kill(platform: Any, words: str) -> None:
    """That process, as by kill -9."""
    process_of(platform, words).send_signal(signal.SIGKILL)


def leaf_of(platform: Any) -> psutil.Process:
    """The leaf's server. Its stub may not stand still: the server would find it sick, and answer so."""
    return process_of(platform, f"--grpc-port={platform.leaf_grpc.rpartition(':')[2]}")


def pause(platform: Any) -> None:
    """Zoo and leaf stand still for a while: whatever they work on is slow, on any machine."""
    paused = [process_of(platform, f"--http-port={platform.zoo_http.rpartition(':')[2]}")]
    paused.append(leaf_of(platform))
    for process in paused:
        process.suspend()
    time.sleep(PAUSE_S)
    for process in paused:
        process.resume()


def chat_slowly(platform: Any) -> None:
    """One chat whose first token is late, since the leaf stands still before it."""
    leaf = leaf_of(platform)
    with ThreadPoolExecutor(1) as pool:
        leaf.suspend()
        asked = pool.submit(chat_once, platform, 4)
        time.sleep(LATE_S)
        leaf.resume()
        assert asked.result().status_code == 200, asked.result().text


def under_load(platform: Any, load: str, seconds: float, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Run the load for so long."""
    command = [sys.executable, HERE / "load.py", platform.url, load, str(seconds)]
    with subprocess.Popen(command) as process:
        time.sleep(seconds / 4)
        meanwhile()
    assert process.returncode == 0


def chat_once(platform: Any, tokens: int) -> httpx.Response:
    """One short chat."""
    body = {"model": "chat", "max_tokens": tokens, "messages": [{"role": "user", "content": "Are you there?"}]}
    return httpx.post(f"{platform.url}/v1/chat/completions", json=body, timeout=60)


def until_well(platform: Any) -> None:
    """Until what was killed answers again."""
    while embed(platform, f"well {time.time()}").status_code != 200 or chat_once(platform, 1).status_code != 200:
        time.sleep(0.5)  # between two looks; the test's own timeout bounds it


def embed(platform: Any, text: str) -> httpx.Response:
    """One request; the text new, or the response cache answers."""
    return httpx.post(f"{platform.url}/v1/embeddings", json={"model": "embed", "input": text}, timeout=60)


def fail_a_stage(platform: Any) -> set[str]:
    """Kill a stage's stub and ask, until a request met it dead: the supervisor may be quicker, or a breaker open.

    Which stages failed, of which version, and how.
    """
    for attempt in range(STAGE_KILLS):
        while embed(platform, f"well {time.time()}").status_code != 200:
            time.sleep(0.2)  # between two looks; the test's own timeout bounds it
        kill(platform, "embed_tokenizer_0_0")
        answers = [embed(platform, f"nobody {attempt} {number} {time.time()}") for number in range(3)]
        if met := {
            json.dumps(failed) for each in answers if (failed := each.json().get("error", {}).get("failed_stage"))
        }:
            return met
    pytest.fail("no request met the dead stage")


def fail_a_stage_twice(platform: Any) -> None:
    """In the same way, with scrapes between: a series that begins with its only failure never rises."""
    met = fail_a_stage(platform)
    for _ in range(STAGE_KILLS):
        time.sleep(SCRAPES_S)
        if met & (again := fail_a_stage(platform)):
            return
        met |= again
    pytest.fail(f"no stage failed twice in the same way: {met}")


def go_wrong(platform: Any, access: Path) -> None:
    """Two stages' stubs, a whole server and a replica of the router are killed, and the access log has no place."""
    if access.is_dir():
        access.rename(access.with_name("aside"))
        access.write_text("no folder")
    fail_a_stage_twice(platform)
    kill(platform, "classify_tokenizer_0_0")
    leaf_of(platform).kill()
    kill(platform, "ray::ServeReplica")


@pytest.fixture(scope="module")
def other_zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A second server of one of the zoo's models, as where the zoo runs twice."""
    folder = tmp_path_factory.mktemp("other")
    server = TritonServer(
        "other",
        find_installation(Settings().resolved().cache_dir, own_backends()),
        ROOT / "model_repository" / "zoo",
        Addresses("127.0.0.1", *reserved_ports(3)),
        folder / "other.log",
        models=("language", "language_tokenizer", "language_encoder"),
    )
    server.start()
    try:
        server.wait_until_loaded(60)
        yield server
    finally:
        server.stop(10)


def ask(server: TritonServer, times: int) -> None:
    """Requests to one server alone, past the router."""
    text = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["Which language is this?"]}
    for _ in range(times):
        url = f"http://{server.addresses.http}/v2/models/language/infer"
        assert httpx.post(url, json={"inputs": [text]}, timeout=30).status_code == 200


def quickly(configuration: str) -> str:
    """The same, and scraped more often. Ray's agent needs a second for its page where the cores are busy."""
    return configuration.replace("_interval: 15s", "_interval: 5s").replace(
        "scrape_interval: 5s, evaluation_interval: 5s", "scrape_interval: 2s, evaluation_interval: 2s"
    )


@pytest.fixture(scope="module")
def live(
    platforms_of_module: Callable[..., Any],
    start_prometheus: Callable[[str], str],
    serve: Callable[[type[BaseHTTPRequestHandler]], str],
    other_zoo: TritonServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Live:
    """Idle, and then a round of everything."""
    folder = tmp_path_factory.mktemp("live")
    leaf_port = reserved_ports(1)[0]
    write_catalogue(folder / "zoo.yaml", leaf_port, serve(Flaky))
    write_repository(folder / "models")
    platform = platforms_of_module(
        ZOOSERVE_MODELS="default,embed_sparse",
        ZOOSERVE_ACCESS_LOG__FOLDER=str(folder / "access"),
        ZOOSERVE_CATALOGUE=str(folder / "zoo.yaml"),
        ZOOSERVE_REPOSITORY=str(folder / "models"),
        ZOOSERVE_LEAF__GRPC_PORT=str(leaf_port),
        ZOOSERVE_ROUTER__REPLICAS="2",
        ZOOSERVE_ROUTER__CHAT_MAX_WAITING="2",
        ZOOSERVE_ROUTER__BULK_TOKENS_IN_FLIGHT="6000",
        ZOOSERVE_ZOO__RESPONSE_CACHE_BYTES=str(2**24),
        ZOOSERVE_TRACING__ENDPOINT=serve(Collector),
        ZOOSERVE_TRACING__RATIO="0.5",
        ZOOSERVE_TRACING__SLOW_S="0.5",
        ZOOSERVE_WATCH__INTERVAL_S="1",
    )
    platform.up()
    configuration = Path(platform.state.scrape_file).read_text()
    zoo = f'"{platform.zoo_metrics}"'
    assert zoo in configuration
    configuration = configuration.replace(zoo, f'{zoo}, "{other_zoo.addresses.metrics}"')
    prometheus = Prometheus(start_prometheus(quickly(configuration)))
    live = Live(platform, prometheus, other_zoo, folder / "access")
    time.sleep(6)  # idle
    live.live_through()
    return live


def told(found: list[Fault]) -> str:
    return f"{len(found)} expressions at fault:\n" + "\n".join(map(str, found))


def test_every_target_is_up(live: Live) -> None:
    while set((targets := live.prometheus.targets()).values()) != {"up"}:
        assert time.time() < live.span.ended + 60, targets
        time.sleep(1)  # between two looks, once the load is over
    assert {job for job, _ in targets} == {"router", "zoo", "leaf", "haproxy", "ray"}


def test_every_expression_has_data_that_varies_with_the_load(live: Live) -> None:
    asked = [each for each in ASKED if not each.requires and each.expression not in CONSTANT]
    for _ in range(ROUNDS - 1):
        if not faults(live.prometheus, asked, live.span):
            return
        live.live_through()
    found = faults(live.prometheus, asked, live.span)
    assert not found, told(found)


def largest(live: Live, drawn: Drawn) -> float:
    """The largest number that a panel draws."""
    answers = (live.prometheus.range(filled(target.expression, WINDOW), live.span) for target in drawn.targets)
    values = (float(value) for answer in answers for series in answer for _, value in series["values"])
    return max(filter(math.isfinite, values))


def test_every_panel_has_values_of_the_size_that_its_unit_stands_for(live: Live) -> None:
    panels = [each for each in read(DASHBOARDS) if each.unit in LARGEST and not each.requires]
    found = {(each.dashboard, each.title, each.unit): largest(live, each) for each in panels}
    assert {unit for _, _, unit in found} == set(LARGEST)
    assert not {
        panel: value for panel, value in found.items() if not LARGEST[panel[2]][0] <= value <= LARGEST[panel[2]][1]
    }


def test_what_is_called_constant_has_data_and_is_asked_for(live: Live) -> None:
    asked = {each.expression: each for each in ASKED if not each.requires}
    assert CONSTANT.keys() <= asked.keys()
    listed = [Asked(asked[each].where, each, may_be_constant=True) for each in CONSTANT]
    found = faults(live.prometheus, listed, live.span)
    assert not found, told(found)


# With the configuration of docker-compose.yml

KEY = "a-key-of-qdrants"


class Page(BaseHTTPRequestHandler):
    """The page of a part that cannot be had here: what it shows is of no matter, that it is asked for is."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/metrics" and self.may_read() else 401)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b"stands_in 1\n")

    def may_read(self) -> bool:
        return True

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


class GuardedPage(Page):
    """Qdrant's, which asks for the key that compose hands to Prometheus as a secret."""

    def may_read(self) -> bool:
        return self.headers["authorization"] == f"Bearer {KEY}"


def moved_to_loopback(text: str, addresses: Mapping[str, str], secret: Path) -> str:
    """prometheus.yml of compose with each look-up by DNS as a fixed target of the same job; scraped more often."""
    yaml = YAML(typ="safe", pure=True)
    configuration = yaml.load(text)
    configuration["global"] = {"scrape_interval": "2s", "evaluation_interval": "2s"}
    configuration["rule_files"] = [
        str(ROOT / "observability" / "prometheus" / name) for name in configuration["rule_files"]
    ]
    for job in configuration["scrape_configs"]:
        if job.pop("dns_sd_configs", None) is not None:
            job["static_configs"] = [{"targets": [addresses[job["job_name"]]]}]
        if "authorization" in job:
            assert job["authorization"] == {"credentials_file": "/run/secrets/qdrant_api_key"}
            job["authorization"] = {"credentials_file": str(secret)}
    return json.dumps(configuration)


def real_addresses(platform: Any) -> dict[str, str]:
    """Where the platform's own configuration finds its parts, by job."""
    written = YAML(typ="safe", pure=True).load(Path(platform.state.scrape_file).read_text())
    return {job["job_name"]: job["static_configs"][0]["targets"][0] for job in written["scrape_configs"]}


def test_composes_prometheus_has_every_target_up_five_real_and_pages_standing_in_for_what_cannot_be_had(
    live: Live,
    start_prometheus: Callable[[str], str],
    serve: Callable[[type[BaseHTTPRequestHandler]], str],
    tmp_path: Path,
) -> None:
    """Stand-ins: vllm, qdrant, collector, spanmetrics, tempo, grafana. Prometheus scrapes itself, too."""
    secret = tmp_path / "qdrant_api_key"
    secret.write_text(f"{KEY}\n")
    real = real_addresses(live.platform)
    stand_ins = {job: serve(Page).removeprefix("http://") for job in BESIDE if job not in ("prometheus", "qdrant")}
    addresses = {**stand_ins, "qdrant": serve(GuardedPage).removeprefix("http://"), **real}
    committed = (ROOT / "observability" / "prometheus" / "prometheus.yml").read_text()
    prometheus = Prometheus(start_prometheus(moved_to_loopback(committed, addresses, secret)))
    began = time.time()
    while set((targets := prometheus.targets()).values()) != {"up"}:
        assert time.time() < began + 60, targets
        time.sleep(1)  # between two looks
    assert set(real) == set(JOBS)
    assert {job for job, _ in targets} == {*JOBS, *BESIDE}
    rules = httpx.get(f"{prometheus.url}/api/v1/rules", timeout=30).json()["data"]["groups"]
    assert {rule["health"] for group in rules for rule in group["rules"]} <= {"ok", "unknown"}
    assert len(rules) == len(list((ROOT / "observability" / "prometheus" / "rules").glob("*.yml")))


# What comes to a collector

RECORDED = ROOT / "tests" / "observability" / "otel" / "spans.json"
RECORD = "ZOOSERVE_TEST_RECORD_SPANS"
"""Set, the spans are written anew instead of compared."""
_CHAT = {"max_tokens": 4, "messages": [{"role": "user", "content": "Are you there?"}]}
ASKED_FOR = {
    "ordinary": ("/v1/embeddings", 200, {"model": "embed@1", "input": "What comes to a collector?"}),
    "refused": ("/v1/embeddings", 404, {"model": "nobody", "input": "What comes to a collector?"}),
    "failed": ("/v1/chat/completions", 503, {"model": "chat_dead", **_CHAT}),
    "chat": ("/v1/chat/completions", 200, {"model": "chat", **_CHAT}),
}


def sent_of(live: Live, kind: str, recorded: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The spans of one request of a kind, as a collector gets them in OTLP's JSON, by service: once all have come that
    were recorded, or after a while as they are.
    """
    path, status, body = ASKED_FOR[kind]
    trace_id = f"{secrets.token_hex(8)}{1:016x}"  # of the share that is kept
    headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
    answer = httpx.post(f"{live.platform.url}{path}", json=body, headers=headers, timeout=60)
    assert answer.status_code == status, answer.text
    found: list[dict[str, Any]] = []
    deadline = time.time() + (20 if recorded is not None else 5)
    while time.time() < deadline and not (recorded and shape(found, kind) == shape(recorded, kind)):
        time.sleep(0.2)  # between two looks; it settles for a second
        found = [span for span in came() if bytes.fromhex(trace_id) == b64decode(span["traceId"])]
    return found


def came() -> Iterator[dict[str, Any]]:
    """Every span that came lately, with its service's name."""
    for body in list(Collector.came):
        for resource in MessageToDict(ExportTraceServiceRequest.FromString(body)).get("resourceSpans", ()):
            (service,) = [each["value"]["stringValue"] for each in resource["resource"]["attributes"]]
            for scope in resource["scopeSpans"]:
                yield from ({"service": service, **span} for span in scope["spans"])


def shape(spans: list[dict[str, Any]], kind: str) -> dict[str, dict[str, str]]:
    """Which attributes of which type are on which spans; of a failure the root: how far it came is a breaker's."""
    return {
        f"{span['service']}: {span['name']}": {
            each["key"]: next(iter(each["value"])) for each in span.get("attributes", ())
        }
        for span in spans
        if kind != "failed" or span["name"] == "zooserve.request"
    }


def test_the_spans_that_come_to_a_collector_are_those_that_its_rules_were_tried_on(live: Live) -> None:
    until_well(live.platform)
    if os.environ.get(RECORD):
        sent = {kind: sent_of(live, kind, None) for kind in ASKED_FOR}
        bare = {
            kind: [{k: v for k, v in span.items() if k != "events"} for span in spans] for kind, spans in sent.items()
        }
        RECORDED.write_text(json.dumps(bare, indent=1, sort_keys=True) + "\n")
    for kind, spans in json.loads(RECORDED.read_text()).items():
        came_now = shape(sent_of(live, kind, spans), kind)
        assert came_now == shape(spans, kind), f"{kind}: others than recorded; {RECORD}=1 writes them anew"
