"""What the trace log has on the disk, for whoever looks: while its platform runs, after its end, after `kill -9`."""

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from zooserve_observability.spans import Span
from zooserve_observability.trace_log.decision import Decision
from zooserve_observability.trace_log.portions import unpacked
from zooserve_observability.trace_log.store import APPLICATION_ID, DECISIONS, SCHEMA_VERSION

__all__ = ["NoTraceLog", "Request", "Selection", "TraceReader"]

Selection = Literal["newest", "slowest"]
_BUSY_S = 3.0
_LEAST_PREFIX = 6
_ORDER: dict[Selection, str] = {
    "newest": "began_ns DESC, requests.number DESC",
    "slowest": "coalesce(first_token_ns, duration_ns) DESC",
}
_COLUMNS = """trace_id, decision, span_id, request_id, model, version, slo_class, outcome, route, began_ns, duration_ns,
    first_token_ns, failed, (SELECT sum(spans) FROM portions WHERE portions.trace = traces.number)"""


class NoTraceLog(Exception):
    """There is nothing that can be read; the message says why."""


@dataclass(frozen=True)
class Request:
    """One request that is known: what its root span said."""

    trace_id: str
    decision: Decision
    span_id: str
    request_id: str
    model: str
    version: str
    slo_class: str
    outcome: str
    route: str
    began_ns: int
    duration_ns: int
    first_token_ns: int | None
    failed: int
    """1 where the router answered 5xx, or broke off."""
    spans: int
    """Of its whole trace, which may hold other requests of its caller's."""


class TraceReader:
    """The file, looked into for as long as one question takes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def requests(self, selection: Selection, limit: int, *, errors: bool = False) -> list[Request]:
        """That many of them, or of those that failed. Raises NoTraceLog."""
        return self._requests(f"WHERE failed >= ? ORDER BY {_ORDER[selection]} LIMIT ?", int(errors), limit)

    def of_request(self, request_id: str) -> list[Request]:
        """Those with this id, or one that begins so, the newest first. Raises NoTraceLog.

        Callers may choose their ids, and choose one twice.
        """
        newest = "ORDER BY began_ns DESC LIMIT 100"
        if found := self._requests(f"WHERE request_id = ? {newest}", request_id):
            return found
        if len(request_id) < _LEAST_PREFIX:
            return []
        return self._requests(f"WHERE request_id BETWEEN ? AND ? {newest}", request_id, f"{request_id}\U0010ffff")

    def of_trace(self, trace_id: str) -> list[Request]:
        """The requests of one trace, the newest first. Raises NoTraceLog."""
        return self._requests("WHERE trace_id = ? ORDER BY began_ns DESC LIMIT 100", trace_id)

    def spans(self, trace_id: str) -> list[Span]:
        """What is known of a trace. Raises NoTraceLog."""
        query = "SELECT body FROM portions WHERE trace = (SELECT number FROM traces WHERE trace_id = ?) ORDER BY number"
        with self._open() as database:
            bodies = [row[0] for row in database.execute(query, (trace_id,)).fetchall()]
            try:
                return [span for body in bodies for span in unpacked(trace_id, zlib.decompress(body))]
            except (zlib.error, ValueError, TypeError) as exc:
                raise NoTraceLog(f"{self._path} is damaged ({exc})") from exc

    def _requests(self, rest: str, *values: Any) -> list[Request]:
        query = f"SELECT {_COLUMNS} FROM requests JOIN traces ON traces.number = requests.trace {rest}"  # noqa: S608
        with self._open() as database:
            rows = database.execute(query, values).fetchall()
        return [_request(*row) for row in rows]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        if not self._path.is_file():
            raise NoTraceLog(f"{self._path} is not there")
        try:
            # Not mode=ro: a writer that was killed may have left a journal, and reading plays it back.
            database = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=rw", timeout=_BUSY_S, uri=True)
            try:
                database.execute("PRAGMA query_only = ON")
                _require_own(database)
                yield database
            finally:
                database.close()
        except sqlite3.Error as exc:
            raise NoTraceLog(f"{self._path} cannot be read ({exc})") from exc


def _request(trace_id: str, decision: int, *rest: Any) -> Request:
    return Request(trace_id, DECISIONS[decision], *rest)


def _require_own(database: sqlite3.Connection) -> None:
    own = (APPLICATION_ID, SCHEMA_VERSION)
    if tuple(database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")) != own:
        raise sqlite3.DatabaseError("it is no trace log of this version")
