"""Server-sent events read as they come: any chunk borders, any of the three line ends, comments left out."""

import re
from dataclasses import dataclass

from zooserve.errors import BackendFailed

__all__ = ["EventReader", "ServerEvent"]

# A carriage return at the very end may be half of a CRLF: it waits for what follows.
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
_LONGEST_EVENT_BYTES = 8 * 2**20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ServerEvent:
    """One event: its data, and its name where the server gives one."""

    data: str
    name: str = "message"


class EventReader:
    """Takes the bytes of one stream and gives its events, each as soon as its blank line is there."""

    def __init__(self) -> None:
        self._unread = b""
        self._data: list[bytes] = []
        self._size = 0
        self._name = b""
        self._start: bytes | None = b""
        """What may be the first part of a byte order mark; None once the stream has begun."""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that this chunk completes. Raises BackendFailed for one that has no end."""
        if self._start is not None:
            chunk = self._begun(self._start + chunk)
        events = [event for line in self._lines(chunk) if (event := self._take(line)) is not None]
        if self._size + len(self._unread) > _LONGEST_EVENT_BYTES:
            raise BackendFailed(f"The server sent an event of more than {_LONGEST_EVENT_BYTES} bytes.")
        return events

    def rest(self) -> list[ServerEvent]:
        """What the end of the stream completes: some servers leave out the last blank line."""
        return self.feed(b"\n\n") if self._unread or self._data else []

    def _begun(self, start: bytes) -> bytes:
        """The stream's first bytes without a byte order mark, once there are enough of them to tell."""
        self._start = start if len(start) < len(_BOM) and _BOM.startswith(start) else None
        return start.removeprefix(_BOM) if self._start is None else b""

    def _lines(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes; one without a line end is not looked through again with the next."""
        if b"\n" not in chunk and b"\r" not in chunk and not self._unread.endswith(b"\r"):
            self._unread += chunk
            return []
        *lines, self._unread = _LINE_END.split(self._unread + chunk)
        return lines

    def _take(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._complete()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1  # and the line break that joins it
        elif name == b"event":
            self._name = value
        return None

    def _complete(self) -> ServerEvent | None:
        data, name = self._data, self._name
        self._data, self._name, self._size = [], b"", 0
        if not data:
            return None
        return ServerEvent(b"\n".join(data).decode("utf-8", "replace"), name.decode("utf-8", "replace") or "message")
