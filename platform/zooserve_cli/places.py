"""Paths as they are printed: short, and such that a terminal or an editor can open them."""

from pathlib import Path

__all__ = ["shown"]


def shown(path: Path) -> Path:
    """Relative to the working directory where it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
