"""The `cpu` profile of docker-compose.yml without containers: its command lines, in the environment that Compose makes.

What a container gives is put in its place: names of services become loopback, their ports free ones, and what is
mounted the files themselves.
"""

import copy
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from zooserve.processes.identity import command_of, descendants, process_table
from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[3]
START_S = 240


@pytest.fixture(scope="module")
def stack() -> Any:
    """Both profiles that this machine can play, rendered by the real Docker Compose with the example's variables."""
    rendered = [
        subprocess.run(
            [Path(sys.executable).with_name("docker-compose"), "--env-file", ".env.example", "config", "--format=json"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "COMPOSE_PROFILES": profile},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for profile in ("vllm", "cpu")
    ]
    vllm, cpu = map(json.loads, rendered)
    return {**cpu, "services": vllm["services"] | cpu["services"], "configs": vllm["configs"] | cpu["configs"]}


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The port of a server that answers so."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield str(server.server_port)
        finally:
            server.shutdown()
            thread.join()


class Answering(BaseHTTPRequestHandler):
    """What both stand-ins are made of."""

    def read(self) -> bytes:
        """What was sent."""
        return self.rfile.read(int(self.headers["content-length"]))

    def answer(self, body: bytes, kind: str = "application/json") -> None:
        """Send it."""
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


def collector(taken: set[tuple[str, str]]) -> type[Answering]:
    """In the Collector's place: keeps where spans came, as what."""

    class Collector(Answering):
        def do_POST(self) -> None:
            self.read()
            taken.add((self.path, self.headers["content-type"]))
            self.answer(b"")

    return Collector


class Vllm(Answering):
    """In vLLM's place, for the wire alone: there is no GPU."""

    def do_GET(self) -> None:
        self.answer(b'{"object": "list", "data": [{"id": "chat", "object": "model"}]}')

    def do_POST(self) -> None:
        assert json.loads(self.read())["model"] == "chat"
        made = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "chat"}
        pieces = [
            {
                **made,
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi."}, "finish_reason": None}],
            },
            {**made, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {**made, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
        ]
        events = [f"data: {json.dumps(piece)}\n\n" for piece in pieces]
        self.answer("".join([*events, "data: [DONE]\n\n"]).encode(), "text/event-stream")


def proxies(name: str) -> dict[str, str]:
    """What Docker hands to every container where its own client goes through a proxy; this one is not there.

    vLLM's server is an upstream, and those are asked as the environment says.
    """
    nowhere = dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"), "http://127.0.0.1:9")
    return {**nowhere, "no_proxy": "127.0.0.1"} if name == "router-vllm" else nowhere


@dataclass
class Box:
    """Containers without an engine: what each is given, and the processes in their place."""

    stack: Any
    root: Path
    ports: Mapping[tuple[str, str], str]
    """Of a service's name on the networks and its port there."""
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Its command, in its environment."""
        service = self.stack["services"][name]
        program, *arguments = service["command"]
        assert program == "zooserve"
        with (self.root / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "zooserve_cli", *arguments],
                cwd=self.root,
                env={"PATH": os.environ["PATH"], "HOME": str(self.root), **proxies(name), **self.environment(name)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def environment(self, name: str) -> dict[str, str]:
        """As rendered, with what a container would give put in its place."""
        return {
            variable: self._outside(name, variable, value)
            for variable, value in self.stack["services"][name]["environment"].items()
        }

    def _outside(self, name: str, variable: str, value: str) -> str:
        if value.startswith("/"):
            return self._path(name, value)
        if value in ("0.0.0.0", "zoo", "leaf"):
            return "127.0.0.1"
        if value.startswith("http://"):
            host, _, port = value.removeprefix("http://").partition(":")
            return f"http://127.0.0.1:{self.ports[host, port]}"
        if variable.endswith("PORT"):
            host = variable.removeprefix("ZOOSERVE_").partition("__")[0].lower()
            return self.ports["router" if host in ("port", "router") else host, value]
        return value

    def _path(self, name: str, path: str) -> str:
        """What is mounted there. Nothing else of a container's file system may be named."""
        service = self.stack["services"][name]
        files = {one["target"]: self._config(one["source"]) for one in service.get("configs", ())}
        files |= {f"/run/secrets/{one['source']}": self._secret(one["source"]) for one in service.get("secrets", ())}
        for mount in service["volumes"]:
            # A volume that is kept from one start to the next: here the one that the other tests fill.
            shared = str(Settings().cache_dir.expanduser())
            files[mount["target"]] = mount["source"] if mount["type"] == "bind" else shared
        for mount in service["tmpfs"]:
            files[mount.partition(":")[0]] = str(self.root / name)
        return files[path]

    def _config(self, name: str) -> str:
        """The file, with vLLM's address in it that is the stand-in's."""
        text = Path(self.stack["configs"][name]["file"]).read_text()
        (self.root / name).write_text(
            text.replace("http://vllm:8000/", f"http://127.0.0.1:{self.ports['vllm', '8000']}/")
        )
        return str(self.root / name)

    def _secret(self, name: str) -> str:
        (self.root / name).write_text("0123456789abcdef" * 4)
        return str(self.root / name)

    def healthy(self, name: str) -> "subprocess.CompletedProcess[str]":
        """Its health check."""
        kind, python, *arguments = self.stack["services"][name]["healthcheck"]["test"]
        assert (kind, python) == ("CMD", "python3")
        url = f"http://127.0.0.1:{self.ports[name.partition('-')[0], '8000']}"
        words = [sys.executable, *arguments, "--url", url]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def wait_until_healthy(self, name: str) -> None:
        """Ask as Docker does, again and again."""
        deadline = threading.Event()
        timer = threading.Timer(START_S, deadline.set)
        timer.start()
        try:
            while (done := self.healthy(name)).returncode != 0:
                assert self.processes[name].poll() is None, f"{name} ended while starting\n{self.log(name)}"
                assert not deadline.wait(0.25), f"{name}: {done.stdout}\n{self.log(name)}"
        finally:
            timer.cancel()
        assert done.stdout == f"{name.partition('-')[0]}: works\n"

    def stop(self, name: str) -> int:
        """As Docker does: SIGTERM, and the grace period."""
        process = self.processes[name]
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        return process.wait(150)

    def log(self, name: str) -> str:
        """The end of what it said."""
        return (self.root / f"{name}.log").read_text(errors="replace")[-3000:]


@contextmanager
def box_of(stack: Any, root: Path) -> Iterator[tuple[Box, set[tuple[str, str]]]]:
    """And what came to its Collector. Every process that a test leaves is ended."""
    taken: set[tuple[str, str]] = set()
    with ExitStack() as ended:
        others = {
            ("collector", "4318"): ended.enter_context(listening(collector(taken))),
            ("vllm", "8000"): ended.enter_context(listening(Vllm)),
        }
        named = [
            *((triton, port) for triton in ("zoo", "leaf") for port in ("8000", "8001", "8002")),
            *(("router", port) for port in ("8000", "9101", "9102")),
        ]
        ports = dict(zip(named, map(str, reserved_ports(len(named))), strict=True))
        box = Box(stack, root, {**ports, **others})
        ended.callback(lambda: [box.stop(name) for name in box.processes])
        yield box, taken


def ask(url: str, body: object) -> Any:
    headers = {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=60) as answer:
        return json.load(answer)


def embedded_and_chatted(box: Box) -> str:
    """What a chat answers, once an embedding was right."""
    url = f"http://127.0.0.1:{box.ports['router', '8000']}"
    embedded = ask(f"{url}/v1/embeddings", {"model": "embed", "input": "hello"})
    assert len(embedded["data"][0]["embedding"]) == 384
    chat = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}
    return str(ask(f"{url}/v1/chat/completions", chat)["choices"][0]["message"]["content"])


def test_the_profile_answers_is_healthy_and_stops_in_order(stack: Any, tmp_path: Path) -> None:
    with box_of(stack, tmp_path) as (box, spans):
        box.start("weights")  # in place: it proves them by their hashes
        assert box.processes.pop("weights").wait(START_S) == 0, box.log("weights")
        for name in ("zoo-cpu", "leaf-cpu", "router"):
            box.start(name)
        for name in ("zoo-cpu", "leaf-cpu", "router"):
            box.wait_until_healthy(name)
        assert embedded_and_chatted(box)
        assert [box.stop(name) for name in ("router", "leaf-cpu")] == [0, 0]
        # The profile `vllm`: the same zoo, and no leaf.
        box.start("router-vllm")
        box.wait_until_healthy("router-vllm")
        assert embedded_and_chatted(box) == "Hi."
        assert [box.stop(name) for name in ("router-vllm", "zoo-cpu")] == [0, 0]
        # The routers' spans and Triton's.
        assert spans == {("/v1/traces", "application/x-protobuf"), ("/v1/traces", "application/json")}
        lines = [line for line in (tmp_path / "router.log").read_text().splitlines() if line.startswith("{")]
        assert {json.loads(line)["route"] for line in lines} >= {"/v1/embeddings", "/v1/chat/completions"}
        assert "Started HTTPService" in (tmp_path / "zoo-cpu.log").read_text()


def test_a_triton_that_dies_ends_its_container_with_an_error(stack: Any, tmp_path: Path) -> None:
    with box_of(stack, tmp_path) as (box, _):
        box.start("leaf-cpu")
        box.wait_until_healthy("leaf-cpu")
        os.kill(triton_of(box, "leaf-cpu"), signal.SIGKILL)
        assert box.processes["leaf-cpu"].wait(60) == 1
        assert "leaf: tritonserver ended by itself (signal 9)." in box.log("leaf-cpu")
        assert box.healthy("leaf-cpu").returncode == 1


def test_a_triton_that_hangs_ends_its_container_with_an_error(stack: Any, tmp_path: Path) -> None:
    hasty = {"WATCH__INTERVAL_S": "0.5", "WATCH__PROBE_TIMEOUT_S": "2", "LEAF__STOP_TIMEOUT_S": "1"}
    with box_of(with_variables(stack, "leaf-cpu", **hasty), tmp_path) as (box, _):
        box.start("leaf-cpu")
        box.wait_until_healthy("leaf-cpu")
        os.kill(triton_of(box, "leaf-cpu"), signal.SIGSTOP)
        assert box.processes["leaf-cpu"].wait(120) == 1
        assert re.search(r"leaf: .*no (answer|statistics) within 2 s .*3 times in a row", box.log("leaf-cpu"))


def triton_of(box: Box, name: str) -> int:
    """The one process below a container's first."""
    main = box.processes[name].pid
    (triton,) = Path(f"/proc/{main}/task/{main}/children").read_text().split()
    return int(triton)


def test_a_triton_that_is_stopped_while_it_loads_ends_in_order(stack: Any, tmp_path: Path) -> None:
    with box_of(stack, tmp_path) as (box, _):
        box.start("zoo-cpu")
        log = tmp_path / "zoo-cpu.log"
        while "loading: " not in log.read_text():
            assert box.processes["zoo-cpu"].poll() is None, box.log("zoo-cpu")
            time.sleep(0.05)  # between two looks
        assert box.stop("zoo-cpu") == 0


def with_variables(stack: Any, name: str, **variables: str) -> Any:
    """The same, with other settings for one service."""
    changed = copy.deepcopy(stack)
    changed["services"][name]["environment"] |= {f"ZOOSERVE_{key}": value for key, value in variables.items()}
    return changed


def stub_of(model: str, supervisor: int) -> int:
    """The process that runs a Python model of the Triton below this one."""
    below = descendants([supervisor], process_table())
    return next(each.pid for each in below if f"/{model}/1/model.py" in command_of(each.pid))


def test_a_model_whose_stub_was_killed_is_loaded_again(stack: Any, tmp_path: Path) -> None:
    with box_of(with_variables(stack, "zoo-cpu", MODELS="embed"), tmp_path) as (box, _):
        box.start("zoo-cpu")
        box.wait_until_healthy("zoo-cpu")
        stub = stub_of("embed_tokenizer", box.processes["zoo-cpu"].pid)
        os.kill(stub, signal.SIGKILL)
        assert "embed: 500" in box.healthy("zoo-cpu").stdout
        box.wait_until_healthy("zoo-cpu")
        assert stub_of("embed_tokenizer", box.processes["zoo-cpu"].pid) != stub
        assert "zoo: embed_tokenizer works again" in box.log("zoo-cpu")
