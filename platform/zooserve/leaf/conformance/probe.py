"""What a probe is, and what it asks with."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from zooserve.leaf.conformance.endpoint import LeafEndpoint, Response, Shape

__all__ = ["NotApplicable", "Probe", "Subject", "Violation", "output_of", "require", "text_of"]

SHORT_TOKENS = 24


class Violation(Exception):
    """The server does not keep the contract; the message says how."""


class NotApplicable(Exception):
    """This cannot be asked of this server, or over this protocol; the message says why."""


def require(holds: bool, why: str) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(why)


@dataclass(frozen=True)
class Subject:
    """The server under test, and what it declares."""

    endpoint: LeafEndpoint
    shape: Shape
    prompt: str
    """Greedy decoding must write at least a hundred tokens after it."""

    async def all(self, request_id: str = "", **inputs: Any) -> list[Response]:
        """Every message of one answer."""
        asked = {"text_input": self.prompt, **inputs}
        async with aclosing(self.endpoint.responses(asked, request_id)) as responses:
            return [response async for response in responses]

    async def streamed(self, **inputs: Any) -> list[Response]:
        """The messages of a streamed answer without echo. Raises Violation if it is refused or empty."""
        asked = {
            "streaming": True,
            "sampling_param_max_tokens": SHORT_TOKENS,
            "sampling_param_exclude_input_from_output": True,
            **inputs,
        }
        responses = await self.all(**asked)
        require(bool(responses), "a streamed request got no response at all")
        for response in responses:
            require(response.error is None, f"a plain streamed request was refused: {response.error}")
        return responses

    async def answer(self, **inputs: Any) -> Response:
        """The one message of an answer that is not streamed. Raises Violation if there is another number of them."""
        asked = {
            "sampling_param_max_tokens": SHORT_TOKENS,
            "sampling_param_exclude_input_from_output": True,
            **inputs,
        }
        responses = await self.all(**asked)
        require(len(responses) == 1, f"without streaming one response must come, and {len(responses)} did")
        require(responses[0].error is None, f"a plain request was refused: {responses[0].error}")
        return responses[0]


@dataclass(frozen=True)
class Probe:
    """One thing that is asked. `ask` returns what it saw, or raises Violation or NotApplicable."""

    name: str
    trap: int | None
    sentence: str
    """What a conforming server does."""
    ask: Callable[[Subject], Awaitable[str]]


def text_of(response: Response) -> str:
    """The text of a message. Raises Violation if it has none."""
    return output_of(response, "text_output")


def output_of(response: Response, name: str) -> str:
    """An output of a message. Raises Violation if it is not there."""
    require(name in response.outputs, f"a response has no {name}, it has {_named(response.outputs)}")
    return response.outputs[name]


def _named(outputs: Mapping[str, str]) -> str:
    return ", ".join(outputs) or "none"
