"""The record of what was placed, so that a fetch with nothing to do only looks at sizes and time stamps."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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

    def matches(self, path: Path, *, verify: bool) -> bool:
        """Whether the file still looks the same; with `verify`, whether it still is the same."""
        try:
            now = path.stat()
        except OSError:
            return False
        if (now.st_size, now.st_mtime_ns) != (self.size, self.mtime_ns):
            return False
        return not verify or hash_file(path) == self.sha256


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
