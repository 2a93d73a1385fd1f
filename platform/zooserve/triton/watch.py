"""Looking after one Triton by real inference: what is wrong with it, and the remedy that mends it.

Triton's own readiness is not evidence: it is 200 over models whose stub was killed. A look asks every watched model
one short question, unless the model's statistics say that it answered somebody since the last look. A response cache
answers for a dead stub too: a probe's text is new each time, and beside a cache nobody's success is evidence.
"""

import json
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from zooserve.catalogue import Modality
from zooserve.leaf.metrics import load_in
from zooserve.settings import WatchSettings
from zooserve.triton.samples import SAMPLES
from zooserve.triton.server import TritonServer
from zooserve.triton.tensors import bytes_tensor, encode_request

__all__ = [
    "Probe",
    "Reload",
    "Remedy",
    "Restart",
    "Watch",
    "backoff_s",
    "chat_probe",
    "content_probe",
    "sick_model",
    "tell_new_faults",
    "text_probe",
]

_SICK_STUB = re.compile(r"Stub process '(?P<model>.+?)(?:_\d+_\d+)?' is not healthy")
_CONTROL_TIMEOUT_S = 120.0
_METRICS_TIMEOUT_S = 5.0
_STATISTICS = "(statistics)"
# A model that is late while others answer may only be starved: a bulk stub at nice 10 beside 14 busy neighbours took
# more than 15 s for a text. It gets this many times the patience.
_PATIENCE_WITH_ONE = 4


@dataclass(frozen=True)
class Reload:
    """Load this model anew."""

    model: str
    cause: str


@dataclass(frozen=True)
class Restart:
    """Stop the server and start it on the same ports."""

    cause: str


Remedy = Reload | Restart


@dataclass(frozen=True)
class Probe:
    """One short question to one Triton model."""

    model: str
    path: str
    body: Callable[[], bytes]
    """Made anew for each asking."""
    headers: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[str], int] | None = None
    """Reads from the server's metrics page a number that moves while the model works, if it has one.

    A leaf that prefills long prompts lets a probe wait for minutes: it is busy, not hung. Raises LookupError when the
    page does not have the number.
    """


def text_probe(model: str, rows: int = 1) -> Probe:
    """A zoo model's question: `rows` short texts, never the same ones."""

    def body() -> bytes:
        texts = [f"are you there, {secrets.token_hex(4)}?"] * rows
        text = {"name": "text", "shape": [rows, 1], "datatype": "BYTES", "data": texts}
        return json.dumps({"inputs": [text]}).encode()

    return Probe(model, f"/v2/models/{model}/infer", body)


def content_probe(model: str, modality: Modality) -> Probe:
    """The question of a zoo model that takes no text: one small image or file."""
    body, header_length = encode_request([bytes_tensor(modality, [SAMPLES[modality]])], (), request_id="probe")
    headers = {"inference-header-content-length": str(header_length)}
    return Probe(model, f"/v2/models/{model}/infer", lambda: body, headers)


def chat_probe(model: str) -> Probe:
    """The leaf's question: one token."""
    body = {"text_input": "Hi", "sampling_param_max_tokens": 1, "sampling_param_exclude_input_from_output": True}
    path = f"/v2/models/{model}/generate_stream"
    return Probe(model, path, lambda: json.dumps(body).encode(), progress=lambda page: load_in(page).live_kv_tokens)


def sick_model(error: str) -> str | None:
    """The model whose stub an error text of Triton calls unhealthy; a member, where an ensemble was asked."""
    found = _SICK_STUB.search(error)
    return found.group("model") if found else None


def backoff_s(settings: WatchSettings, remedies: int) -> float:
    """How long to wait before the next remedy, after that many in a row; none before the first."""
    if remedies == 0:
        return 0.0
    return float(min(settings.longest_backoff_s, settings.backoff_s * 2 ** min(remedies - 1, 20)))


def tell_new_faults(log: logging.Logger, server: str, faults: Mapping[str, str], told: dict[str, str]) -> None:
    """One line when a model's fault appears or changes, one when it is over; not one per look.

    `told` is what was told before.
    """
    for model, fault in faults.items():
        if told.get(model) != fault:
            log.warning("%s: %s failed its probe: %s", server, model, fault)
    for model in told.keys() - faults.keys():
        log.info("%s: %s answers its probe again", server, model)
    told.clear()
    told.update(faults)


class _Late(Exception):
    """The server did not answer in time, or not at all."""


class _Failed(Exception):
    """The server answered with an error."""


@dataclass(frozen=True)
class _Lateness:
    times: int
    cause: str


class Watch:
    """The looks at one server, and what they have found so far."""

    def __init__(self, server: TritonServer, probes: Iterable[Probe], settings: WatchSettings) -> None:
        self._server = server
        self._probes = tuple(probes)
        self._settings = settings
        self._answered: dict[str, int] = {}
        self._late: dict[str, _Lateness] = {}
        self._progress: dict[str, int] = {}
        self.faults: dict[str, str] = {}
        """What is wrong with each model that failed its last probe, and with the statistics."""
        self.failed: list[str] = []
        """The models that failed their probe in the last look."""

    async def look(self, http: httpx.AsyncClient) -> list[Remedy]:
        """Look once. An empty list: nothing needs to be done."""
        self.failed = []
        if self._server.pid is None:
            return [Restart(f"tritonserver ended by itself ({_ending(self._server.exit_code)})")]
        try:
            answered = await self._answers_so_far(http)
        except _Late as late:
            self._note_late(_STATISTICS, str(late))
            return self._hung(self._settings.patience)
        except _Failed as failure:
            self.faults[_STATISTICS] = str(failure)
            answered = dict(self._answered)  # nobody counts as answered: every model is asked
        else:
            self.faults.pop(_STATISTICS, None)
        self._late.pop(_STATISTICS, None)
        remedies: list[Remedy] = []
        for probe in self._probes:
            if not self._server.caches and answered.get(probe.model, 0) > self._answered.get(probe.model, 0):
                self._note_well(probe.model)
            else:
                remedies += await self._ask(http, probe)
        self._answered = await self._counts_after_probes(http, answered)
        alone = len(self._late) < len(self._probes)
        hung = self._hung(self._settings.patience * (_PATIENCE_WITH_ONE if alone else 1))
        return _merged([self._without_stale_answers(remedy) for remedy in remedies + hung])

    def _without_stale_answers(self, remedy: Remedy) -> Remedy:
        """A restart instead of a reload whose files have changed: the cache would go on answering for the old ones."""
        if isinstance(remedy, Reload) and self._server.caches and self._server.files_changed():
            return Restart(f"{remedy.cause}; files changed since the start, and cached answers outlive a reload")
        return remedy

    async def reload(self, http: httpx.AsyncClient, model: str) -> str:
        """Unload and load a model; "" or what went wrong. A load alone is skipped while no file has changed."""
        for verb in ("unload", "load"):
            try:
                answer = await http.post(f"{self._url}/v2/repository/models/{model}/{verb}", timeout=_CONTROL_TIMEOUT_S)
            except httpx.HTTPError as exc:
                return f"{verb}: {exc!r}"
            if answer.status_code != 200:
                return f"{verb}: {_error_text(answer)}"
        return ""

    def forget(self) -> None:
        """The server was started anew: its counters are zero again."""
        self._answered.clear()
        self._late.clear()
        self._progress.clear()

    @property
    def models(self) -> list[str]:
        """The models that are probed."""
        return [probe.model for probe in self._probes]

    @property
    def _url(self) -> str:
        return f"http://{self._server.addresses.http}"

    async def _ask(self, http: httpx.AsyncClient, probe: Probe) -> list[Remedy]:
        try:
            await self._post_twice_if_sick(http, probe)
        except _Late as late:
            self.failed.append(probe.model)
            self.faults[probe.model] = str(late)
            if await self._has_moved(http, probe):
                self._late.pop(probe.model, None)
            else:
                self._note_late(probe.model, str(late))
            return []
        except _Failed as failure:
            self._late.pop(probe.model, None)
            self.failed.append(probe.model)
            self.faults[probe.model] = str(failure)
            sick = sick_model(str(failure))
            return [Reload(sick, str(failure))] if sick else []
        self._note_well(probe.model)
        return []

    async def _has_moved(self, http: httpx.AsyncClient, probe: Probe) -> bool:
        """Whether the model worked since the last late probe, by its own metrics."""
        if probe.progress is None:
            return False
        try:
            page = await http.get(f"http://{self._server.addresses.metrics}/metrics", timeout=_METRICS_TIMEOUT_S)
            now = probe.progress(page.text)
        except (httpx.HTTPError, LookupError):
            return False
        before, self._progress[probe.model] = self._progress.get(probe.model), now
        return now != before

    async def _post_twice_if_sick(self, http: httpx.AsyncClient, probe: Probe) -> None:
        """A stub that got no core for a second is called sick too; a dead one still is when asked again."""
        try:
            await self._post(http, probe)
        except _Failed as failure:
            if not sick_model(str(failure)):
                raise
            await self._post(http, probe)

    async def _post(self, http: httpx.AsyncClient, probe: Probe) -> None:
        try:
            answer = await http.post(
                f"{self._url}{probe.path}",
                content=probe.body(),
                headers=probe.headers,
                timeout=self._settings.probe_timeout_s,
            )
        except httpx.HTTPError as exc:
            raise _Late(f"no answer within {self._settings.probe_timeout_s:g} s ({type(exc).__name__})") from exc
        # generate_stream reports a failure as an event under status 200.
        if answer.status_code != 200 or answer.text.startswith('data: {"error"'):
            raise _Failed(_error_text(answer))

    async def _answers_so_far(self, http: httpx.AsyncClient) -> dict[str, int]:
        try:
            answer = await http.get(f"{self._url}/v2/models/stats", timeout=self._settings.probe_timeout_s)
        except httpx.HTTPError as exc:
            raise _Late(f"no statistics within {self._settings.probe_timeout_s:g} s ({type(exc).__name__})") from exc
        try:
            return _counts(answer)
        except (ValueError, LookupError, TypeError, AttributeError) as exc:
            raise _Failed(f"its statistics cannot be read ({exc!r}): {_error_text(answer)}") from exc

    async def _counts_after_probes(self, http: httpx.AsyncClient, before: dict[str, int]) -> dict[str, int]:
        """So that our own probe does not count as somebody's request at the next look."""
        try:
            return await self._answers_so_far(http)
        except (_Late, _Failed):
            return before

    def _note_well(self, model: str) -> None:
        self._late.pop(model, None)
        self.faults.pop(model, None)

    def _note_late(self, what: str, cause: str) -> None:
        times = self._late[what].times + 1 if what in self._late else 1
        self._late[what] = _Lateness(times, cause)

    def _hung(self, patience: int) -> list[Remedy]:
        return [
            Restart(f"{what}: {late.cause}, {late.times} times in a row")
            for what, late in self._late.items()
            if late.times >= patience
        ]


def _counts(answer: httpx.Response) -> dict[str, int]:
    """Successes of each model, over all its versions."""
    counts: dict[str, int] = {}
    for entry in answer.json()["model_stats"]:
        counts[entry["name"]] = counts.get(entry["name"], 0) + _successes(entry)
    return counts


def _successes(entry: Mapping[str, Any]) -> int:
    return int(entry.get("inference_stats", {}).get("success", {}).get("count", 0))


def _merged(remedies: list[Remedy]) -> list[Remedy]:
    """One restart is enough; a member shared by two ensembles is reloaded once."""
    for remedy in remedies:
        if isinstance(remedy, Restart):
            return [remedy]
    return list({remedy.model: remedy for remedy in remedies if isinstance(remedy, Reload)}.values())


def _error_text(answer: httpx.Response) -> str:
    text = answer.text.removeprefix("data: ").strip()
    return f"{answer.status_code}: {text[:300]}"


def _ending(code: int | None) -> str:
    if code is None:
        return "never started"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
