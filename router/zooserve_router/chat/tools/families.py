"""How each family of models was trained to see functions, and to write calls of them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from zooserve.catalogue import ToolFamily
from zooserve_router.chat.generation import Tool
from zooserve_router.nesting import is_deeper

__all__ = ["FAMILIES", "Around", "Family", "described", "parsed_arguments"]

_MAX_ARGUMENT_LEVELS = 64


@dataclass(frozen=True)
class Around:
    """What stands around and between the items of a list."""

    opening: str
    between: str
    closing: str

    def of(self, items: Iterable[str]) -> str:
        """The items as one text."""
        return self.opening + self.between.join(items) + self.closing


@dataclass(frozen=True)
class Family:
    """The JSON of a call, and the marks that the family knows functions, calls and results by."""

    arguments: str
    """The key of a call's arguments, beside `name`."""
    result: str
    """The key of what a function returned, beside `name`."""
    several: bool
    """Whether an answer is an array of calls, rather than one call."""
    tools: Around
    calls: Around
    results: Around

    def tools_text(self, tools: Iterable[Tool]) -> str:
        """The functions that may be called."""
        return self.tools.of(_json(described(tool)) for tool in tools)

    def calls_text(self, calls: Iterable[tuple[str, Any]]) -> str:
        """Calls that were made, each a name and its arguments."""
        return self.calls.of(_json({"name": name, self.arguments: arguments}) for name, arguments in calls)

    def results_text(self, results: Iterable[tuple[str | None, str]]) -> str:
        """What functions returned, each under its name where that is known."""
        return self.results.of(
            _json({**({"name": name} if name is not None else {}), self.result: content}) for name, content in results
        )

    @property
    def shape(self) -> str:
        """What an answer with a call looks like, for the model to read."""
        call = f'{{"name": <function>, "{self.arguments}": <object>}}'
        return f"[{call}]" if self.several else call


def described(tool: Tool) -> dict[str, Any]:
    """The function as OpenAI's API writes it, which is what templates expect."""
    description = {"description": tool.description} if tool.description is not None else {}
    return {"type": "function", "function": {"name": tool.name, **description, "parameters": dict(tool.parameters)}}


def parsed_arguments(text: Any) -> Any:
    """The arguments of a call that was made; those that are no JSON, or nested past all use, as the text they are."""
    try:
        arguments = json.loads(text)
        _json(arguments).encode()  # not with half of a surrogate pair, which an escape may be and no text has
    except (RecursionError, TypeError, ValueError):
        return text
    return text if is_deeper(arguments, _MAX_ARGUMENT_LEVELS) else arguments


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


FAMILIES: Mapping[ToolFamily, Family] = MappingProxyType(
    {
        "hermes": Family(
            arguments="arguments",
            result="content",
            several=False,
            tools=Around("<tools>\n", "\n", "\n</tools>"),
            calls=Around("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>"),
            results=Around("<tool_response>\n", "\n</tool_response>\n<tool_response>\n", "\n</tool_response>"),
        ),
        "llama3": Family(
            arguments="parameters",
            result="output",
            several=False,
            tools=Around("", "\n\n", ""),
            calls=Around("", "\n", ""),
            results=Around("", "\n", ""),
        ),
        "mistral": Family(
            arguments="arguments",
            result="content",
            several=True,
            tools=Around("[AVAILABLE_TOOLS] [", ", ", "][/AVAILABLE_TOOLS]"),
            calls=Around("[TOOL_CALLS] [", ", ", "]"),
            results=Around("[TOOL_RESULTS] ", "[/TOOL_RESULTS][TOOL_RESULTS] ", "[/TOOL_RESULTS]"),
        ),
    }
)
