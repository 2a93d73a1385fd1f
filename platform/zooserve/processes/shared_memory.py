"""Shared-memory regions of the Python stubs, found by the prefix that a platform gives its own."""

import hashlib
from pathlib import Path

__all__ = ["prefix_of", "regions", "remove_regions"]

_FOLDER = Path("/dev/shm")  # noqa: S108 (where the kernel keeps them)


def prefix_of(state_dir: Path) -> str:
    """The start of every region's name of the platform that runs from `state_dir`."""
    return f"zooserve-{hashlib.sha256(str(state_dir).encode()).hexdigest()[:8]}-"


def regions(prefix: str) -> list[str]:
    """The names of the regions that start so."""
    return sorted(path.name for path in _FOLDER.glob(f"{prefix}*"))


def remove_regions(prefix: str) -> list[str]:
    """Remove them, and return their names. Only for when nobody of the platform runs any more."""
    names = regions(prefix)
    for name in names:
        (_FOLDER / name).unlink(missing_ok=True)
    return names
