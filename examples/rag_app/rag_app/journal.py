"""What was asked and answered, and what people thought of it: one SQLite file with the newest answers."""

import json
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

from rag_app.rag import Source

__all__ = ["Journal"]

_TABLE = """create table if not exists answers (
    id text primary key, asked_at real, question text, answer text, sources text, useful integer, comment text
)"""
_OLD = "delete from answers where rowid not in (select rowid from answers order by rowid desc limit ?)"


class Journal:
    """Keeps the newest `most` answers. Blocks for a moment: call it from a thread."""

    def __init__(self, path: Path, most: int = 10_000) -> None:
        self._path = path
        self._most = most
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._transaction() as db:
            db.execute(_TABLE)

    def record(self, question: str, answer: str, sources: Sequence[Source]) -> str:
        """Keep an answer; its id, for feedback."""
        identity = uuid.uuid4().hex
        row = (identity, time.time(), question, answer, json.dumps([asdict(source) for source in sources]))
        with self._transaction() as db:
            db.execute("insert into answers (id, asked_at, question, answer, sources) values (?, ?, ?, ?, ?)", row)
            db.execute(_OLD, (self._most,))
        return identity

    def rate(self, identity: str, *, useful: bool, comment: str) -> bool:
        """Keep what somebody thought of an answer, the last word counts; False if there is no such answer."""
        with self._transaction() as db:
            done = db.execute("update answers set useful = ?, comment = ? where id = ?", (useful, comment, identity))
            return done.rowcount == 1

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=10)) as db, db:
            yield db
