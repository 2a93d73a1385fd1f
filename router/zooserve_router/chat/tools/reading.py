"""A backend's answer under a schema of calls, as the caller is to get it: text as content, calls as calls."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from zooserve.errors import BackendFailed
from zooserve.leaf.stops import StopScanner
from zooserve_router.chat.generation import Piece, ToolCallPart
from zooserve_router.chat.tools.families import Family
from zooserve_router.chat.tools.parsing import AnswerParser, Said, Unreadable

__all__ = ["ToolReader"]


@dataclass(frozen=True)
class ToolReader:
    """Reads the pieces of one call to a backend, each of its choices for itself."""

    family: Family
    stop: tuple[str, ...] = ()
    """Strings that end a message; the backend, which would match them in JSON, does not get them."""
    raw_message: bool = False
    """Whether a message is JSON of a schema of its own, and comes out as it is written."""

    async def __call__(self, pieces: AsyncGenerator[Piece, None], choices: int) -> AsyncGenerator[Piece, None]:
        """What the caller is to see. Raises BackendFailed for an answer that is not as the schema has it."""
        readings = [_Choice(self) for _ in range(choices)]
        async with aclosing(pieces):
            async for piece in pieces:
                yield readings[piece.choice].read(piece)
                if all(reading.stopped for reading in readings):
                    return


class _Choice:
    """How far one choice is read."""

    def __init__(self, reader: ToolReader) -> None:
        self._parser = AnswerParser(reader.family.arguments, _new_call_id, raw_message=reader.raw_message)
        self._scanner = StopScanner(reader.stop)

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended it, so that nothing that may still come is wanted."""
        return self._scanner.matched is not None

    def read(self, piece: Piece) -> Piece:
        """The same piece in the caller's form; without words once a stop string has matched."""
        if self.stopped:
            return replace(piece, text="", reasoning="", finish_reason=None)
        said = self._parsed(piece.text)
        text = self._scanner.feed("".join(part for part in said if isinstance(part, str)))
        calls = tuple(part for part in said if isinstance(part, ToolCallPart))
        if self.stopped:
            return replace(piece, text=text, tool_calls=calls, finish_reason="stop", cut=piece.finish_reason is None)
        if piece.finish_reason is None:
            return replace(piece, text=text, tool_calls=calls)
        reason = self._reason(piece.finish_reason)
        return replace(piece, text=text + self._scanner.flush(), tool_calls=calls, finish_reason=reason)

    def _parsed(self, text: str) -> list[Said]:
        try:
            return self._parser.feed(text)
        except Unreadable as exc:
            raise BackendFailed(f"The answer is not the JSON that the backend was to hold it to: {exc}.") from exc

    def _reason(self, reason: str) -> str:
        """Why the caller's answer ended: a whole one is whole, whatever stopped the blanks behind it."""
        if self._parser.complete:
            return "tool_calls" if self._parser.calls else "stop"
        if reason == "stop":
            raise BackendFailed("The answer ended within the JSON that the backend was to hold it to.")
        return reason


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
