"""The record of what was placed, so that a fetch with nothing to do only looks at sizes and time stamps."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from zooserve.weights.disk import hash_file, write_whole

__all__ = ["Placed", "Record"]


@dataclass(frozen=True)
class Placed:
    """One file that was placed: what it was wanted for, its hash, and how it looked then."""

    key: str
    sha256: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path, *, key: str, sha256: str) -> "Placed":
        """The file at `path` as it looks now."""
        now = path.stat()
        return cls(key=key, sha256=sha256, size=now.st_size, mtime_ns=now.st_mtime_ns)

    def seen_again(self, path: Path, *, verify: bool) -> "Placed | None":
        """The same file with the time stamp it has now, or None when it is another or gone.

        It is hashed only if its time stamp changed (a copy of the folder, a `touch`), or to `verify`.
        """
        try:
            now = path.stat()
        except OSError:
            return None
        if now.st_size != self.size:
            return None
        if now.st_mtime_ns == self.mtime_ns and not verify:
            return self
        return replace(self, mtime_ns=now.st_mtime_ns) if hash_file(path) == self.sha256 else None


class Record:
    """The record file of one model repository."""

    def __init__(self, repository: Path) -> None:
        self.path = repository / ".weights.json"

    def read(self) -> dict[str, Placed]:
        """What was placed, by place; nothing when there is no record, or none that can be read."""
        try:
            entries = json.loads(self.path.read_text(encoding="utf-8"))
            return {target: Placed(**entry) for target, entry in entries.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def write(self, placed: Mapping[str, Placed]) -> None:
        """Replace the record."""
        content = json.dumps({target: asdict(entry) for target, entry in sorted(placed.items())}, indent=1).encode()
        with write_whole(self.path, len(content)) as file:
            file.write(content)
