"""The folder of one job: what it was asked, what it has done, the parts that wait. One process at a time owns it."""

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from zooserve.errors import JobRefused, JobStopped, SetupError
from zooserve.processes.files import write_atomically
from zooserve_cli.reembedding.ledger import Ledger

__all__ = ["Definition", "FileStamp", "Job", "JobFolder"]

_SCHEMA = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class FileStamp(_Part):
    """A source file as it was when the job began."""

    path: str
    bytes: int
    modified_ns: int


class Definition(_Part):
    """What makes a job this job. One that goes on must be asked the same."""

    collection: str
    """The alias."""
    source: str
    """The collection that is read; empty where files are."""
    files: tuple[FileStamp, ...]
    to: str
    """The release, as `embed@1`."""
    space: str
    """The fingerprint of its embedding space."""
    sparse: str
    """The sparse release and its space; empty where there are no sparse vectors to make."""
    vector: str
    """The name of the dense vector that is made anew."""
    text_field: str
    id_field: str
    part_rows: int


class Job(_Part):
    """The job of a folder."""

    schema_version: int = _SCHEMA
    id: str
    target: str
    """The new collection."""
    previous: str
    """What a rollback leads back to; empty where there is nothing."""
    led_to: str | None = None
    """What the alias led to when the job began, empty where to nothing; None of a job that did not say."""
    definition: Definition
    served: bool = False
    """Whether the new collection may have been searched: the switch was begun."""
    done: bool = False
    """Whether the alias was switched."""

    @classmethod
    def begun(cls, definition: Definition, target: str, previous: str, led_to: str) -> "Job":
        """A new one."""
        return cls(id=uuid4().hex, target=target, previous=previous, led_to=led_to, definition=definition)


class JobFolder:
    """Where the job of one alias in one store lies."""

    def __init__(self, state: Path, store: str, collection: str) -> None:
        digest = hashlib.sha256(f"{store}\n{collection}".encode()).hexdigest()[:8]
        self.root = state / "reembed" / f"{collection}-{digest}"
        self.parts = self.root / "parts"
        self.letters = self.root / "dead-letters.jsonl"
        self.seen_ids = self.root / "ids.sqlite"
        self.records = self.root / "processes.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """For the block, no other process works on this job. Raises JobRefused if one does.

        Raises JobStopped where a file cannot be read or written in the block: a disk is full, most of all.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise SetupError(f"{self.root} cannot be made ({exc.strerror}): set ZOOSERVE_STATE_DIR.") from exc
        try:
            with FileLock(self.root / "lock", timeout=0):
                yield
        except Timeout as exc:
            raise JobRefused(
                f"Another process works on this job ({self.root}). Wait for it, or end it: the next one goes on."
            ) from exc
        except (OSError, sqlite3.Error) as exc:
            raise JobStopped(
                f"A file cannot be read or written: {exc}. What is done stays in {self.root}. When that is mended the "
                "same command goes on."
            ) from exc

    def read(self) -> Job | None:
        """The job that lies here. Raises JobRefused for one that this version cannot read."""
        try:
            said = json.loads(self._job_file.read_text(encoding="utf-8"))
            if said["schema_version"] != _SCHEMA:
                raise ValueError(f"schema {said['schema_version']}")
            return Job.model_validate(said)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, ValidationError) as exc:
            raise JobRefused(f"{self._job_file} cannot be read ({exc}). Begin anew with --restart.") from exc

    def write(self, job: Job) -> None:
        """Replace what is said of the job."""
        self.parts.mkdir(exist_ok=True)
        write_atomically(self._job_file, job.model_dump_json(indent=1))

    def clear(self) -> None:
        """Forget the job, its ledger and its parts; the dead letters of the last one stay as `.previous`."""
        self._job_file.unlink(missing_ok=True)  # first: without it nothing else counts
        if self.letters.exists():
            self.letters.replace(self.letters.with_suffix(".jsonl.previous"))
        for path in (self._ledger_file, self.seen_ids):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.parts, ignore_errors=True)

    def ledger(self) -> Ledger:
        """Opened, with what a kill left behind cut off."""
        return Ledger(self._ledger_file, self.letters)

    def part_file(self, part: int) -> Path:
        """Where the rows of a staged part lie."""
        return self.parts / f"{part:08}.jsonl"

    def write_part(self, part: int, rows: bytes) -> None:
        """On disk when this returns; an older one of the same number is replaced."""
        path = self.part_file(part)
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            file.write(rows)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    def drop_parts(self, waiting: Any) -> None:
        """Remove the files of parts that no longer wait."""
        kept = {self.part_file(part) for part in waiting}
        for path in self.parts.iterdir():
            if path not in kept:
                path.unlink(missing_ok=True)

    @property
    def _job_file(self) -> Path:
        return self.root / "job.json"

    @property
    def _ledger_file(self) -> Path:
        return self.root / "ledger.jsonl"
