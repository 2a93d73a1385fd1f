"""The checkpoint's chat template, rendered as transformers renders it, in a sandbox with bounds.

A template is foreign code that came with the weights: it cannot reach attributes with underscores, change what it is
given, count beyond a fixed number of steps, multiply text without end, or answer with more than the model reads. It is
still the operator's choice of checkpoint: a sandbox in this process cannot bound every way to waste memory.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import reduce
from types import MappingProxyType
from typing import Any, cast

from jinja2 import Environment, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from zooserve.errors import InputTooLong, TemplateFailed
from zooserve_router.chat.generation import Message, Tool
from zooserve_router.chat.tools.families import described, parsed_arguments

__all__ = ["ChatTemplate"]

_NO_TOKENS: Mapping[str, str] = MappingProxyType({})
_MAX_STEPS = 100_000
_MAX_BUILT_CHARACTERS = 4 * 2**20
# What builds much text out of a number or a short format; no published chat template needs them.
_REMOVED_FILTERS = ("center", "format", "wordwrap")
_REMOVED_GLOBALS = ("lipsum",)
_UNSAFE_METHODS = ("center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map")


class ChatTemplate:
    """A checkpoint's template, compiled once; a checkpoint may have another one for requests that bring tools.

    `name` is what messages call it, `tokens` what it knows special tokens by (`bos_token`), `now` the clock behind
    `strftime_now`, which some templates print the date with.
    """

    def __init__(
        self,
        source: str,
        *,
        name: str = "of the model",
        with_tools: str | None = None,
        tokens: Mapping[str, str] = _NO_TOKENS,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.name = name
        self.sources = (source, *((with_tools,) if with_tools is not None else ()))
        self._tokens = {"bos_token": "", "eos_token": "", **tokens}
        self._environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self._environment.filters["tojson"] = _to_json
        self._environment.globals["raise_exception"] = _raise
        self._environment.globals["strftime_now"] = lambda form: now().strftime(form)
        self._template = self._environment.from_string(source)
        self._with_tools = self._template if with_tools is None else self._environment.from_string(with_tools)

    def render(self, messages: Sequence[Message], *, tools: Sequence[Tool] = (), max_characters: int) -> str:
        """The prompt, up to where the assistant speaks.

        Raises TemplateFailed with the template's own words, or InputTooLong once it passes `max_characters`.
        """
        template = self._with_tools if tools else self._template
        parts: list[str] = []
        room = max_characters
        try:
            for part in self._environment.bounded(template.generate(**self._variables(messages, tools))):
                room -= len(part)
                if room < 0:
                    raise InputTooLong(
                        f"The messages come to more than {max_characters} characters of prompt, beyond what this "
                        "model reads. Send fewer or shorter messages.",
                        param="messages",
                    )
                parts.append(part)
        except InputTooLong:
            raise
        except Exception as exc:  # foreign code: whatever it raises is its answer to these messages
            raise TemplateFailed(
                f"The chat template {self.name} refused these messages: {exc}", param="messages"
            ) from exc
        return "".join(parts)

    def _variables(self, messages: Sequence[Message], tools: Sequence[Tool]) -> dict[str, Any]:
        """What transformers gives a template."""
        return {
            **self._tokens,
            "messages": [_with_parsed_arguments(message) for message in messages],
            "add_generation_prompt": True,
            "tools": [described(tool) for tool in tools] or None,
            "documents": None,
        }


def _with_parsed_arguments(message: Message) -> Message:
    """OpenAI writes the arguments of a call as a text of JSON; templates are written for what the text says."""
    if not message.get("tool_calls"):
        return message
    return {**message, "tool_calls": [_with_parsed(call) for call in message["tool_calls"]]}


def _with_parsed(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": parsed_arguments(function["arguments"])}}


class _Sandbox(ImmutableSandboxedEnvironment):
    """Also bounds what one render may count and build."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._steps_left = _MAX_STEPS
        self.globals["range"] = self._range
        for name in _REMOVED_FILTERS:
            del self.filters[name]
        for name in _REMOVED_GLOBALS:
            del self.globals[name]

    def bounded(self, parts: Iterator[str]) -> Iterator[str]:
        """The parts of one render, with a fresh allowance of steps; a render is never interleaved with another."""
        self._steps_left = _MAX_STEPS
        return parts

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """`a ~ b` as `a|string + b|string`, so that the bound on additions holds for it too."""
        return _ConcatAsAdd().visit(super()._parse(source, name, filename))  # type: ignore[no-any-return]

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """No string method that can build megabytes from a number."""
        if isinstance(obj, str) and attr in _UNSAFE_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic within bounds: no powers, no text by number formats, and no text longer than the bound."""
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" or (operator == "%" and not numbers):
            raise SecurityError(f"{operator} is not available here in a chat template")
        if not numbers and _built(operator, left, right) > _MAX_BUILT_CHARACTERS:
            raise SecurityError("the template builds too long a text")
        return super().call_binop(context, operator, left, right)

    def _range(self, *bounds: int) -> range:
        steps = range(*bounds)
        self._steps_left -= len(steps)
        if self._steps_left < 0:
            raise SecurityError(f"the template counts beyond {_MAX_STEPS} steps")
        return steps


def _built(operator: str, left: Any, right: Any) -> int:
    """How long the result of + or * on texts or lists would be."""
    if operator == "+":
        return sum(len(part) for part in (left, right) if hasattr(part, "__len__"))
    sequence, times = (right, left) if isinstance(left, int) else (left, right)
    return len(sequence) * int(times)


class _ConcatAsAdd(NodeTransformer):
    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - jinja2's naming
        texts = [nodes.Filter(self.visit(part), "string", [], [], None, None) for part in node.nodes]
        sums = reduce(lambda left, right: nodes.Add(left, right), texts[1:], cast("nodes.Expr", texts[0]))
        sums.set_lineno(node.lineno, override=True)
        return sums.set_environment(cast("Environment", node.environment))


class _Generation(Extension):
    """`{% generation %}`: marks the assistant's words for training; here it only shows its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own contract

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """The body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)
