"""Warm-ups that failed, as the stages of the zoo say in their server's log: Triton itself counts none.

A failure is logged and nothing else (`onnxruntime/model.py`, `zooserve_ensembles.stages`): answered by an error, it
ended Triton 2.51.
"""

import os
import re
from pathlib import Path

__all__ = ["WarmupLog"]

_FAILED = re.compile(rb"([\w.-]+) version (\d+): its warm-up failed:")


class WarmupLog:
    """A server's log, read on from where it was read to."""

    def __init__(self, log_file: Path) -> None:
        self._log_file = log_file
        self._read_to = 0
        self._inode = 0

    def failures(self) -> list[tuple[str, str]]:
        """Model and version of every failure since the last time."""
        try:
            with self._log_file.open("rb") as log:
                inode = os.fstat(log.fileno()).st_ino
                if inode != self._inode or log.seek(0, 2) < self._read_to:  # begun anew with its server
                    self._inode, self._read_to = inode, 0
                log.seek(self._read_to)
                new = log.read()
        except OSError:
            return []
        whole = new[: new.rfind(b"\n") + 1]
        self._read_to += len(whole)
        return [(model.decode(), version.decode()) for model, version in _FAILED.findall(whole)]
