"""Whether a server works, by a real inference: a container's health check.

    python3 -m zooserve.health zoo embed,rerank
    python3 -m zooserve.health leaf
    python3 -m zooserve.health router embed

The standard library alone: NVIDIA's images have our wheel without what it depends on. Triton's own readiness is no
evidence, it is 200 over models whose process was killed.

Docker restarts what ends, not what is unhealthy. With `--end-after N` the N-th failure in a row ends the server, unless
it has never answered, whoever still loads is left alone, or the model has answered somebody else meanwhile: whoever is
only busy lets a check wait, or refuses it by a full queue.
"""

import argparse
import http.client
import json
import os
import secrets
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from zooserve.triton.samples import SAMPLES

__all__ = [
    "Failures",
    "Sick",
    "answers_of",
    "ask_leaf",
    "ask_router",
    "ask_zoo",
    "end_server",
    "main",
    "parser",
    "within",
]

_BUSY = 429
_INITS = frozenset({"docker-init", "tini"})
_LONGEST = 300
_LARGEST = 32 << 20
_FILE_BYTES = 256
_COUNT_S = 3.0
"""For the statistics behind a failed check: Docker gives both 20 s together."""
_BEGUN = "nv_inference_first_response_histogram_ms_count{"
"""The answers that a decoupled model has begun, on the metrics page of a Triton newer than 2.51."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """No server of ours sends anybody elsewhere, and what answers there is another one."""

    def redirect_request(self, *_: Any) -> None:
        """Leave the redirect as the refusal that it is."""


# A proxy that the environment names is not for a server on this machine.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


class Sick(Exception):
    """What is wrong with the server, in one line; `model` where it is one model of a Triton."""

    def __init__(self, text: str, model: str = "") -> None:
        super().__init__(f"{model}: {text}" if model else text)
        self.model = model


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises Sick in the block once that many seconds are over in all; a socket's own timeout is one of each read."""

    def late(number: int, frame: object) -> None:
        raise Sick(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)  # whoever had one before


def ask_zoo(url: str, models: Sequence[str]) -> None:
    """Have each of these Triton models infer once, whatever of text, image or file it takes. Raises Sick."""
    for model in models:
        try:
            config = json.loads(_answer(f"{url}/v2/models/{model}/config"))
            body, header_length = _inference(config)
            headers = {"inference-header-content-length": str(header_length)}
            outputs = json.loads(_answer(f"{url}/v2/models/{model}/infer", body, headers))["outputs"]
        except Sick as fault:
            raise Sick(str(fault), model) from fault
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as fault:
            raise Sick(f"it answers what no Triton does ({fault!r:.{_LONGEST}})", model) from fault
        if not outputs:
            raise Sick("its answer has no output", model)


def ask_leaf(url: str, model: str) -> None:
    """Have it write one token. Raises Sick."""
    body = {"text_input": "Hi", "sampling_param_max_tokens": 1, "sampling_param_exclude_input_from_output": True}
    try:
        answer = _answer(f"{url}/v2/models/{model}/generate_stream", json.dumps(body).encode())
    except Sick as fault:
        raise Sick(str(fault), model) from fault
    # A failure is an event, too, under status 200.
    if b'"error"' in answer or b'"text_output"' not in answer:
        raise Sick(_line(answer), model)


def ask_router(url: str, models: Sequence[str]) -> None:
    """Every required model is ready, and each of these embeds a text; a router that is full is well. Raises Sick."""
    _answer(f"{url}/health/ready")
    for model in models:
        try:
            _answer(f"{url}/v1/embeddings", json.dumps({"model": model, "input": _new_text()}).encode())
        except _Refused as refusal:
            if refusal.status != _BUSY:
                raise Sick(f"{model}: {refusal}") from refusal


def answers_of(url: str, model: str, metrics: str = "") -> int | None:
    """How often this Triton model has answered anybody, by its own statistics; None where they do not say.

    Of a decoupled model they count what it has taken, answered or not. What it has answered is on the metrics page at
    `metrics`, where Triton is new enough; where not, taking has to do: a hung engine is spared, and a busy one, too.
    """
    try:
        with within(_COUNT_S):
            begun = _begun(metrics, model) if metrics else None
            return _successes(url, model) if begun is None else begun
    except (Sick, ValueError, LookupError, TypeError, RecursionError):
        return None


def _begun(metrics: str, model: str) -> int | None:
    page = _answer(metrics).decode(errors="replace")
    counts = [line for line in page.splitlines() if line.startswith(_BEGUN) and f'model="{model}"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in counts) if counts else None


def _successes(url: str, model: str) -> int:
    versions = json.loads(_answer(f"{url}/v2/models/{model}/stats"))["model_stats"]
    return sum(int(version["inference_stats"]["success"]["count"]) for version in versions)


class _Refused(Sick):
    """An answer with another status than 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


def _answer(url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    request = urllib.request.Request(url, body, {"content-type": "application/json", **(headers or {})})  # noqa: S310 (ours)
    try:
        try:
            with _direct.open(request) as answer:
                content = bytes(answer.read(_LARGEST + 1))
                if len(content) > _LARGEST:
                    raise Sick(f"an answer without an end at {url}")
                if answer.length:  # a read of so many bytes takes fewer for all
                    raise http.client.IncompleteRead(content, answer.length)
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise _Refused(refusal.code, _line(refusal.read(_LARGEST))) from refusal
    except (OSError, ValueError, http.client.HTTPException) as fault:
        reason = str(getattr(fault, "reason", fault)) or type(fault).__name__
        raise Sick(f"no answer at {url} ({_line(reason.encode(errors='replace'))})") from fault
    return content


def _inference(config: Mapping[str, Any]) -> tuple[bytes, int]:
    """The body of an inference with the inputs that this configuration asks for, and the length of its JSON."""
    rows = min(2, max(1, int(config.get("max_batch_size", 1))))  # row 0 of a rerank is the query
    tensors = {given["name"]: _packed(given["name"], rows) for given in config["input"]}
    inputs = [
        {"name": name, "datatype": "BYTES", "shape": [rows, 1], "parameters": {"binary_data_size": len(data)}}
        for name, data in tensors.items()
    ]
    header = json.dumps({"inputs": inputs}).encode()
    return b"".join((header, *tensors.values())), len(header)


def _packed(name: str, rows: int) -> bytes:
    """That many small values of an input of this name, each behind four bytes of its length."""
    sample = next((sample for modality, sample in SAMPLES.items() if modality == name), None)
    values = [sample or _new_text().encode() for _ in range(rows)]
    return b"".join(len(value).to_bytes(4, "little") + value for value in values)


def _new_text() -> str:
    """Never the same: a response cache would answer for a dead model."""
    return f"are you there, {secrets.token_hex(4)}?"


def _line(text: bytes) -> str:
    return " ".join(text.decode(errors="replace").split())[:_LONGEST]


class Failures:
    """How often a server has failed since it last answered, kept in a file from one check to the next.

    `life` tells one run of the server from the next, whatever becomes of the file.
    """

    def __init__(self, file: Path, life: str) -> None:
        self._file = file
        self._life = life

    def answered(self) -> None:
        """It works."""
        self._write(0, {})

    def failed(self, model: str, answers: int | None) -> int:
        """The failures in a row with this one; 0 for a server that has not answered in this life.

        `answers` is how often the model has answered anybody: where that has grown since its last failure, it works.
        """
        kept = self._read()
        if kept is None:
            return 0
        count, before = kept
        works = answers is not None and answers > before.get(model, answers)
        count = 0 if works else count + 1
        self._write(count, before if answers is None else {**before, model: answers})
        return count

    def _read(self) -> tuple[int, dict[str, int]] | None:
        """The failures, and the answers of each model that failed, which were written down in this life."""
        try:
            kept = json.loads(self._file.read_text(encoding="ascii"))
            return (int(kept["failures"]), dict(kept["answers"])) if kept["life"] == self._life else None
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def _write(self, failures: int, answers: Mapping[str, int]) -> None:
        """Over what is there, without emptying the file first: a full disk has kept the room that it takes."""
        kept = json.dumps({"life": self._life, "failures": failures, "answers": answers}).ljust(_FILE_BYTES)
        with suppress(OSError):  # and where there is none, that must not make a server sick
            # The temporary folder may be everybody's: no link of somebody else's is followed.
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.pwrite(descriptor, kept.encode(), 0)
                os.ftruncate(descriptor, len(kept))
            finally:
                os.close(descriptor)


def end_server(processes: Path = Path("/proc")) -> str:
    """Kill the server below a container's init, which then ends, and the container with it; says what was done.

    Elsewhere, where the first process is no container's init, nothing is touched.
    """
    init = (processes / "1" / "comm").read_text(encoding="ascii").strip()
    if init not in _INITS:
        return f"not ended: the first process is {init}, no container's init"
    for pid in _children(1, processes):
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(pid, signal.SIGKILL)
    return "the server was ended"


def _children(parent: int, processes: Path) -> list[int]:
    found = []
    for process in processes.iterdir():
        with suppress(OSError, ValueError):
            pid = int(process.name)
            if pid != os.getpid() and int(_fields(process)[1]) == parent:
                found.append(pid)
    return found


def _fields(process: Path) -> list[str]:
    """What /proc says of a process after its name, which may hold blanks: state, parent and so on."""
    return (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _life() -> str:
    """When the first process started."""
    try:
        return _fields(Path("/proc/1"))[19]
    except (OSError, IndexError):
        return "?"


def _ask(kind: str, url: str, models: Sequence[str]) -> None:
    if kind == "zoo":
        ask_zoo(url, models or ["embed"])
    elif kind == "leaf":
        ask_leaf(url, models[0] if models else "tensorrt_llm")
    else:
        ask_router(url, models)


def parser() -> argparse.ArgumentParser:
    """What the command takes; `zooserve stack check` holds compose files to it."""
    parser = argparse.ArgumentParser(prog="python3 -m zooserve.health", description="Ask a server for an inference.")
    parser.add_argument("kind", choices=("zoo", "leaf", "router"))
    parser.add_argument("models", nargs="?", default="", help="names with commas: embed, tensorrt_llm")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--metrics", default="http://127.0.0.1:8002/metrics", help="where the leaf's Triton shows them")
    parser.add_argument("--timeout", type=float, default=15.0, help="seconds for all of it")
    parser.add_argument("--end-after", type=int, default=0, help="failures in a row that end the server; 0: none")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask once: exit code 0 if it works, else 1 and a line that says what is wrong."""
    chosen = parser().parse_args(arguments)
    url = chosen.url.rstrip("/")
    failures = Failures(Path(tempfile.gettempdir()) / "zooserve-health", _life())
    models = [name.strip() for name in chosen.models.split(",") if name.strip()]
    try:
        with within(chosen.timeout):
            _ask(chosen.kind, url, models)
    except Sick as fault:
        told = str(fault)
        if chosen.end_after:
            metrics = chosen.metrics if chosen.kind == "leaf" else ""
            in_a_row = failures.failed(fault.model, answers_of(url, fault.model, metrics) if fault.model else None)
            if in_a_row >= chosen.end_after:
                told += f"; {in_a_row} failures in a row: {end_server()}"
        sys.stdout.write(f"{chosen.kind}: {told}\n")
        return 1
    if chosen.end_after:
        failures.answered()
    sys.stdout.write(f"{chosen.kind}: works\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
