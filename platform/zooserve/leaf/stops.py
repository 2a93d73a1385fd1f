"""Stop strings in a stream of text pieces: found across pieces, never let out, not even half of one."""

from collections.abc import Sequence

__all__ = ["StopScanner"]


class StopScanner:
    """Passes text on, holding back an end that may yet become a stop string; `matched` is the one that was found."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None
        self.beyond = ""
        """What came behind the stop string that was found, in the piece that completed it."""

    def feed(self, piece: str) -> str:
        """The text that may go out now. Nothing goes out once a stop string was found."""
        if not self._stops:
            return piece
        if self.matched is not None:
            return ""
        text = self._held + piece
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            # The first to be whole ends the text, however it is cut into pieces; of two, the longer one is named.
            at, self.matched = min(found, key=lambda match: (match[0] + len(match[1]), match[0]))
            self._held = ""
            self.beyond = text[at + len(self.matched) :]
            return text[:at]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back, for a text that ended without a stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are a beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
