"""The access log: what became of every request, as one JSON object a line, and nothing of what callers sent.

Whoever ends a request only puts its line into a bounded queue; a thread writes them down every 0.2 s.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NamedTuple

import orjson

from zooserve.settings import Settings
from zooserve_observability.line_files import Lines, LineStream, RotatedFile
from zooserve_observability.log_metrics import LogMetrics
from zooserve_observability.once_a_minute import OnceAMinute

__all__ = ["FIELDS", "AccessLine", "AccessLog"]

_MOST = 8192
"""Lines that wait: some 8 MB."""
_EVERY_S = 0.2
"""What a `kill -9` can take along."""
_LAST_S = 2.0
"""For the last lines, where the disk or the reader of a pipe is ill."""
_RENAMED = {"slo_class": "class", "ended_s": "time"}
_log = logging.getLogger(__name__)


# A tuple: a frozen dataclass of that many fields takes five times as long to make (measured).
class AccessLine(NamedTuple):
    """One request that ended. What is None is left out of its line."""

    ended_s: float
    """Seconds on the wall clock; `time` in the log."""
    request_id: str
    trace_id: str | None
    key_id: str
    method: str
    route: str
    status: int | None
    """None where the caller had left before any answer began."""
    outcome: str
    error: str | None
    """The code of what was refused or failed; its message may quote what the caller sent."""
    failed_stage: str | None
    model: str | None
    version: str | None
    slo_class: str | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    duration_ms: float
    time_to_first_token_ms: float | None
    phases_ms: Mapping[str, float] | None
    bytes_in: int
    bytes_out: int
    pid: int

    def as_json(self) -> bytes:
        """The line, with its newline."""
        told = {name: value for name, value in zip(FIELDS, self, strict=True) if value is not None}
        moment = datetime.fromtimestamp(self.ended_s, UTC).isoformat(timespec="milliseconds")
        told["time"] = f"{moment.removesuffix('+00:00')}Z"
        return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)


FIELDS = tuple(_RENAMED.get(name, name) for name in AccessLine._fields)
"""The names in a line, in their order."""


class AccessLog:
    """Takes lines at once and writes them in the background. No request waits for it or fails by it."""

    def __init__(self, lines: Lines, metrics: LogMetrics, most: int = _MOST, *, takes_health: bool = False) -> None:
        self._lines = lines
        self._metrics = metrics
        self._most = most
        self._waiting: deque[AccessLine] = deque()
        self._too_many = OnceAMinute(_log)
        self._not_written = OnceAMinute(_log)
        self._ended = threading.Event()
        self._in_hand = 0
        """Lines that the thread has, and the disk or the reader of a pipe has not taken yet."""
        self.pid = os.getpid()
        self.takes_health = takes_health
        """Whether it wants health checks and scrapes, too."""

    @classmethod
    def by(cls, settings: Settings, metrics: LogMetrics) -> "AccessLog | None":
        """The log that the settings ask for, if they do. Nothing is opened before the first line."""
        wanted = settings.access_log
        if not wanted.enabled:
            return None
        if wanted.to == "stdout":
            return cls(LineStream(wanted.stdout), metrics, takes_health=wanted.health)
        return cls(RotatedFile(settings.access_log_file, wanted.max_bytes), metrics, takes_health=wanted.health)

    def put(self, line: AccessLine) -> None:
        """Take a line, or count it as lost where too many wait."""
        if len(self._waiting) >= self._most:
            self._metrics.dropped("access", 1)
            self._too_many("more than %d lines wait for the access log: new ones are dropped", self._most)
            return
        self._waiting.append(line)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write for the block what is put, and at its end what is left."""
        writer = threading.Thread(target=self._write_for_ever, name="access-log", daemon=True)
        writer.start()
        try:
            yield
        finally:
            self._ended.set()
            writer.join(_LAST_S)
            if left := self._in_hand + len(self._waiting):
                self._lose(left, "they had not been taken when this process ended")

    def _write_for_ever(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self._write_what_waits()
        self._write_what_waits()

    def _write_what_waits(self) -> None:
        batch: list[bytes] = []
        size = 0
        while self._waiting:
            line = self._told(self._waiting.popleft())
            if not line:
                continue
            self._in_hand += 1
            if size + len(line) > self._lines.most_bytes:
                self._write(batch)
                batch, size = [], 0
            batch.append(line)
            size += len(line)
        self._write(batch)

    def _told(self, line: AccessLine) -> bytes:
        """The line in JSON; nothing of one that JSON has no room for, such as a count that no backend can mean."""
        try:
            return line.as_json()
        except (TypeError, ValueError, OverflowError) as exc:
            self._lose(1, str(exc))
            return b""

    def _write(self, batch: list[bytes]) -> None:
        if not batch:
            return
        try:
            self._lines.append(b"".join(batch))
        except OSError as exc:
            self._lose(len(batch), str(exc))
        self._in_hand -= len(batch)

    def _lose(self, lines: int, why: str) -> None:
        self._metrics.dropped("access", lines)
        self._not_written("lines of the access log could not be written, and are lost: %s", why)
