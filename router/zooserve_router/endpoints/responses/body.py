"""The response object: what was asked, what came of it, and the numbered events that tell of its making."""

import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

from zooserve.errors import BackendFailed, BadInput, Overloaded, ServingError
from zooserve_router.chat.ask import Step
from zooserve_router.context import Record
from zooserve_router.dialects import openai_error
from zooserve_router.endpoints.responses.items import Event, OutputItems

__all__ = ["ResponseBody"]

_CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why an answer is incomplete, by the reason that the model's server gave; any other reason completes it."""


class ResponseBody:
    """One response while it is made: its id and its time are the same in every event.

    `asked` is what the request asked for, defaults filled in, as the response repeats it.
    """

    def __init__(self, asked: Mapping[str, Any], *, with_logprobs: bool = False) -> None:
        self._id = f"resp_{secrets.token_hex(24)}"
        self._created = int(time.time())
        self._asked = asked
        self._items = OutputItems(with_logprobs=with_logprobs)
        self._events = 0
        self._reason: str | None = None

    def opening(self) -> Iterator[Event]:
        """That it exists, and is being worked on."""
        yield self._numbered({"type": "response.created", "response": self._body("in_progress")})
        yield self._numbered({"type": "response.in_progress", "response": self._body("in_progress")})

    def written(self, step: Step) -> Iterator[Event]:
        """What is new."""
        # All of them before the first is numbered: a step that turns out to be wrong must leave no gap.
        for event in list(self._items.events(step)):
            yield self._numbered(event)
        self._reason = step.finish_reason or self._reason

    def closing(self, record: Record) -> Iterator[Event]:
        """The end of its last item, and its own. Raises BackendFailed where none has come: half is not the whole."""
        if self._reason is None:
            raise BackendFailed("The model's server broke its answer off without saying why. Ask again.")
        for event in self._items.ending("incomplete" if self._reason in _CUT else "completed"):
            yield self._numbered(event)
        body = self._ended(record)
        yield self._numbered({"type": f"response.{body['status']}", "response": body})

    def whole(self, record: Record) -> dict[str, Any]:
        """What `closing` ends with, for those who do not read events."""
        *_, last = self.closing(record)
        body: dict[str, Any] = last["response"]
        return body

    def failing(self, error: ServingError) -> Iterator[Event]:
        """That it failed: first the event at which OpenAI's clients raise, then the response as far as it got."""
        told = openai_error(error)["error"]
        flat = {name: told[name] for name in ("code", "message", "param")}
        yield self._numbered({"type": "error", **flat, "error": told})
        self._items.cut()
        body = self._body("failed", error={"code": _code_of(error), "message": error.message})
        yield self._numbered({"type": "response.failed", "response": body})

    def _ended(self, record: Record) -> dict[str, Any]:
        usage = _usage(record)
        if self._reason in _CUT:
            return self._body("incomplete", incomplete_details={"reason": _CUT[self._reason]}, usage=usage)
        return self._body("completed", completed_at=int(time.time()), usage=usage)

    def _body(self, status: str, **told: Any) -> dict[str, Any]:
        head = {"id": self._id, "object": "response", "created_at": self._created, "status": status}
        ends = {"completed_at": None, "error": None, "incomplete_details": None, "usage": None}
        return {**head, **ends, **self._asked, "output": self._items.bodies(), **told}

    def _numbered(self, event: Event) -> Event:
        self._events += 1
        return {**event, "sequence_number": self._events - 1}


def _code_of(error: ServingError) -> str:
    """OpenAI's own words for why a response failed; the error event has ours."""
    if isinstance(error, Overloaded):
        return "rate_limit_exceeded"
    return "invalid_prompt" if isinstance(error, BadInput) else "server_error"


def _usage(record: Record) -> dict[str, Any]:
    """What was counted, by the model's server where it counts."""
    return {
        "input_tokens": record.input_tokens,
        "input_tokens_details": {"cached_tokens": record.cached_tokens or 0, "cache_write_tokens": 0},
        "output_tokens": record.output_tokens,
        "output_tokens_details": {"reasoning_tokens": record.reasoning_tokens or 0},
        "total_tokens": record.input_tokens + record.output_tokens,
    }
