"""Which processes belong to a platform, written down so that the next `up` or `down` can end exactly those."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from zooserve.processes.files import write_atomically
from zooserve.processes.identity import Process, boot_id, command_of, descendants, end, find, is_alive, process_table

__all__ = ["ProcessRecords", "Record"]

_COMMAND_LENGTH = 300
_ADOPTED = "adopted"
_CHILD = " child"


@dataclass(frozen=True)
class Record:
    """One process, what it is for, and how it was started."""

    pid: int
    start_time: int
    role: str
    command: str

    @property
    def process(self) -> Process:
        """The process that is meant, and no later one of the same pid."""
        return Process(self.pid, self.start_time)


class ProcessRecords:
    """The processes of one platform, in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: list[Record] | None = None
        self._roles: dict[Process, str] = {}

    def write(self, records: Iterable[Record]) -> None:
        """Replace the records, if they have changed."""
        wanted = sorted(records, key=lambda record: record.process)
        if wanted == self._written:
            return
        body = {"boot_id": boot_id(), "processes": [asdict(record) for record in wanted]}
        write_atomically(self._path, json.dumps(body, indent=1))
        self._written = wanted

    def read(self) -> list[Record]:
        """What was last written during this boot; nothing if the file is missing or unreadable."""
        try:
            body = json.loads(self._path.read_text(encoding="utf-8"))
            if body["boot_id"] != boot_id():
                return []
            return [Record(**record) for record in body["processes"]]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def alive(self) -> list[Record]:
        """The recorded processes that still run."""
        return [record for record in self.read() if is_alive(record.process)]

    def take_stock(self, supervisor: int, roles: Mapping[int, str]) -> list[Record]:
        """Write down `supervisor` and everything below it, and return it.

        `roles` names the supervisor's own children; what runs below one of them belongs to its role, and still does
        once that one has died and the supervisor has taken in what it left.
        """
        parents = process_table()
        found = {
            process: _role(process.pid, parents, roles) or self._earlier_role(process.pid, parents)
            for process in descendants([supervisor], parents)
        }
        self._roles = {process: role for process, role in found.items() if role != _ADOPTED}
        records = [_record(process, role) for process, role in found.items()]
        if root := find(supervisor):
            records.append(_record(root, "supervisor"))
        self.write(records)
        return records

    def _earlier_role(self, pid: int, parents: Mapping[int, int]) -> str:
        """What this process, or the nearest above it, was when the one it was started for still lived."""
        for each in _lineage(pid, parents):
            process = find(each)
            if process in self._roles:
                role = self._roles[process]
                return role if role.endswith(_CHILD) else f"{role}{_CHILD}"
        return _ADOPTED

    def reap(self, grace_s: float) -> list[Record]:
        """End every recorded process that still runs, and what runs below them; those that were alive."""
        alive = self.alive()
        below = descendants([record.pid for record in alive], process_table())
        ended = end({record.process for record in alive} | below, grace_s)
        known = {record.process: record for record in alive}
        return [known.get(process) or _record(process, "descendant") for process in sorted(ended)]


def _role(pid: int, parents: Mapping[int, int], roles: Mapping[int, str]) -> str | None:
    """The role of a child of the supervisor, `<role> child` below it, None for an orphan that it took in."""
    if pid in roles:
        return roles[pid]
    for each in _lineage(pid, parents):
        if each in roles:
            return f"{roles[each]}{_CHILD}"
    return None


def _lineage(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    """The process itself, its parent, and so on up."""
    yield pid
    while pid in parents:
        pid = parents[pid]
        yield pid


def _record(process: Process, role: str) -> Record:
    return Record(process.pid, process.start_time, role, command_of(process.pid)[:_COMMAND_LENGTH])
