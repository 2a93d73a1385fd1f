"""Settled traces on the disk: one SQLite file that never grows past its bound, the least worthy forgotten first.

One process writes. What it has written outlives `kill -9`; the file is not flushed for a power cut's sake: after one it
may be unreadable, and is set aside at the next start like any file that is no trace log. No write-ahead log: beside a
reader that sleeps one would grow without end, a journal only by what one transaction changes.
"""

import logging
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from zooserve_observability.trace_log.decision import Decision
from zooserve_observability.trace_log.portions import Portion, Root

__all__ = ["APPLICATION_ID", "DECISIONS", "SCHEMA_VERSION", "Settled", "StoreFailed", "TraceStore", "joined"]

APPLICATION_ID = 0x7A6F6F74
SCHEMA_VERSION = 1
DECISIONS: tuple[Decision, ...] = ("left_out", "sampled", "slow", "error")
"""As they are numbered in the file."""
_SCHEMA = """
CREATE TABLE traces (
  number INTEGER PRIMARY KEY,
  trace_id TEXT NOT NULL UNIQUE,
  decision INTEGER NOT NULL,
  worth INTEGER NOT NULL
);
CREATE INDEX traces_by_worth ON traces (worth, number);
CREATE TABLE requests (
  number INTEGER PRIMARY KEY,
  trace INTEGER NOT NULL REFERENCES traces (number) ON DELETE CASCADE,
  span_id TEXT NOT NULL,
  request_id TEXT NOT NULL,
  model TEXT NOT NULL,
  version TEXT NOT NULL,
  slo_class TEXT NOT NULL,
  outcome TEXT NOT NULL,
  route TEXT NOT NULL,
  began_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,
  first_token_ns INTEGER,
  failed INTEGER NOT NULL
);
CREATE INDEX requests_by_id ON requests (request_id);
CREATE INDEX requests_by_time ON requests (began_ns);
CREATE INDEX requests_by_trace ON requests (trace);
CREATE TABLE portions (
  number INTEGER PRIMARY KEY,
  trace INTEGER NOT NULL REFERENCES traces (number) ON DELETE CASCADE,
  spans INTEGER NOT NULL,
  body BLOB NOT NULL
);
CREATE INDEX portions_by_trace ON portions (trace);
"""
_PAGE_BYTES = 4096
_LEAST_PAGES = 64
_FULL = 0.85
"""Of the pages: from here on room is made, so that a transaction finds some."""
_MAKE_ROOM = 0.05
_BUSY_S = 2.0
_log = logging.getLogger("zooserve.traces")


class StoreFailed(Exception):
    """Nothing of this was written; the message says why. Trying again later may work."""


@dataclass(frozen=True)
class Settled:
    """A trace that has ended, or what came late of one."""

    trace_id: str
    decision: Decision
    portions: tuple[Portion, ...]

    @property
    def spans(self) -> int:
        """How many there are."""
        return sum(portion.spans for portion in self.portions)

    @property
    def size_bytes(self) -> int:
        """Of the spans, packed."""
        return sum(len(portion.body) for portion in self.portions)


class TraceStore:
    """The file, open for writing. Of one thread alone."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self._max_pages = max(_LEAST_PAGES, max_bytes // _PAGE_BYTES)
        self._database: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        """Of the file that is open, or was last: somebody may remove it, and put another in its place."""

    @property
    def batch_bytes(self) -> int:
        """What may be written at once: well below the room that is kept."""
        return self._max_pages * _PAGE_BYTES // 20

    @property
    def size_bytes(self) -> int:
        """What the file and its journal take on the disk."""
        files = (self.path, self.path.with_name(f"{self.path.name}-journal"))
        return sum(file.stat().st_size for file in files if file.is_file())

    def write(self, traces: Iterable[Settled]) -> None:
        """Write all of these, or none. Raises StoreFailed."""
        with self._open() as database:
            self._make_room(database)
            with _transaction(database):
                for trace in traces:
                    _write(database, trace)

    def close(self) -> None:
        """Close the file."""
        self._identity = None
        if self._database is not None:
            self._database.close()
            self._database = None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._identity != _identity(self.path):
                self.close()
            if self._database is None:
                self._database = self._opened()
            yield self._database
        except sqlite3.OperationalError as exc:
            self._close_quietly()
            raise StoreFailed(str(exc)) from exc
        except sqlite3.DatabaseError as exc:
            self._close_quietly()
            self._set_aside(str(exc))
            raise StoreFailed(str(exc)) from exc
        except OSError as exc:
            self._close_quietly()
            raise StoreFailed(exc.strerror or str(exc)) from exc

    def _close_quietly(self) -> None:
        """Close the file after a failure; it is still the one that was looked through."""
        identity = self._identity
        try:
            self.close()
        except sqlite3.Error:
            self._database = None
        self._identity = identity

    def _opened(self) -> sqlite3.Connection:
        # Looked through once: that takes long, and a full disk has it opened four times a second.
        is_new = self._identity != _identity(self.path)
        if self.path.exists() and (fault := _fault(self.path, is_new=is_new)):
            self._set_aside(fault)
        self.path.touch(mode=0o600)
        database = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(database)
            self._bound(database)
        except sqlite3.Error:
            database.close()
            raise
        self._identity = _identity(self.path)
        return database

    def _bound(self, database: sqlite3.Connection) -> None:
        """Hold the file to its bound; one that was allowed to be larger before is made smaller."""
        if database.execute("PRAGMA page_count").fetchone()[0] > self._max_pages:
            self._make_room(database)
            with suppress(sqlite3.OperationalError):  # no room for it now: it takes a copy
                database.execute("VACUUM")
        database.execute(f"PRAGMA max_page_count = {self._max_pages}")

    def _set_aside(self, fault: str) -> None:
        aside = self.path.with_name(f"{self.path.name}.set-aside")
        try:
            self.path.replace(aside)
            self.path.with_name(f"{self.path.name}-journal").unlink(missing_ok=True)
        except OSError as exc:
            _log.warning("%s is no trace log (%s), and cannot be set aside: %s", self.path, fault, exc.strerror)
            return
        _log.warning("%s is no trace log that can be used (%s): it now lies in %s", self.path, fault, aside)

    def _make_room(self, database: sqlite3.Connection) -> None:
        """Forget the least worthy, the oldest of them first, while the file is nearly full."""
        while _used_pages(database) > self._max_pages * _FULL:
            count = database.execute("SELECT count(*) FROM traces").fetchone()[0]
            if count == 0:
                return
            some = max(1, int(count * _MAKE_ROOM))
            with _transaction(database):
                database.execute(
                    "DELETE FROM traces WHERE number IN (SELECT number FROM traces ORDER BY worth, number LIMIT ?)",
                    (some,),
                )


def joined(portions: Iterable[Portion]) -> bytes:
    """The packed spans of all of them as one."""
    return b"[" + b",".join(portion.body[1:-1] for portion in portions) + b"]"


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file this is; None where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _fault(path: Path, *, is_new: bool) -> str:
    """What is wrong with a file that ought to be a trace log; nothing of an empty one. A new one is looked through."""
    if not path.is_file():
        return "it is no ordinary file"
    with closing(sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)) as database:
        try:
            application = database.execute("PRAGMA application_id").fetchone()[0]
            version = database.execute("PRAGMA user_version").fetchone()[0]
            tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables == 0 and application == 0:
                return ""
            if application != APPLICATION_ID:
                return "it is another program's"
            if version != SCHEMA_VERSION:
                return f"its schema has version {version}, this one writes {SCHEMA_VERSION}"
            found = database.execute("PRAGMA quick_check(1)").fetchone()[0] if is_new else "ok"
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as exc:
            return str(exc)
    return "" if found == "ok" else str(found)


def _prepare(database: sqlite3.Connection) -> None:
    database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    database.execute("PRAGMA journal_mode = TRUNCATE")
    database.execute("PRAGMA synchronous = OFF")
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("PRAGMA secure_delete = OFF")
    if database.execute("PRAGMA user_version").fetchone()[0] == 0:
        with _transaction(database):
            for statement in _SCHEMA.split(";\n"):
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _used_pages(database: sqlite3.Connection) -> int:
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    free = database.execute("PRAGMA freelist_count").fetchone()[0]
    return int(pages - free)


def _write(database: sqlite3.Connection, trace: Settled) -> None:
    decision = DECISIONS.index(trace.decision)
    worth = min(decision, DECISIONS.index("slow"))  # errors are worth no more than what was slow
    number = database.execute(
        "INSERT INTO traces (trace_id, decision, worth) VALUES (?, ?, ?) ON CONFLICT (trace_id) DO UPDATE "
        "SET decision = max(decision, excluded.decision), worth = max(worth, excluded.worth) RETURNING number",
        (trace.trace_id, decision, worth),
    ).fetchone()[0]
    roots = [_request(number, root) for portion in trace.portions for root in portion.roots]
    database.executemany("INSERT INTO requests VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", roots)
    body = zlib.compress(joined(trace.portions), 1)
    database.execute("INSERT INTO portions VALUES (NULL, ?, ?, ?)", (number, trace.spans, body))


def _request(trace: int, root: Root) -> tuple[object, ...]:
    return (
        trace, root.span_id, root.request_id, root.model, root.version, root.slo_class, root.outcome, root.route,
        root.began_ns, root.duration_ns, root.first_token_ns, root.failed,
    )  # fmt: skip
