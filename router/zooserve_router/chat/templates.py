"""The checkpoint's chat template, rendered as transformers renders it, in a sandbox with bounds.

A template is foreign code that came with the weights: it cannot reach attributes with underscores, change what it is
given, count beyond a fixed number of steps, multiply text without end, or answer with more than the model reads. It is
still the operator's choice of checkpoint: a sandbox in this process cannot bound every way to waste memory.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from zooserve.errors import InputTooLong, TemplateFailed

__all__ = ["ChatTemplate"]

_MAX_STEPS = 100_000
_MAX_BUILT_CHARACTERS = 4 * 2**20
# What builds much text out of a number or a short format; no published chat template needs them.
_REMOVED_FILTERS = ("center", "format", "wordwrap")
_REMOVED_GLOBALS = ("lipsum",)
_UNSAFE_METHODS = ("center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map")


class ChatTemplate:
    """One compiled template. `now` is the clock behind `strftime_now`, which some templates print the date with."""

    def __init__(self, source: str, *, now: Callable[[], datetime] = datetime.now) -> None:
        self.source = source
        self._environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self._environment.filters["tojson"] = _to_json
        self._environment.globals["raise_exception"] = _raise
        self._environment.globals["strftime_now"] = lambda form: now().strftime(form)
        self._template = self._environment.from_string(source)

    @classmethod
    def read(cls, path: Path) -> "ChatTemplate":
        """Compile the template of a file."""
        return cls(path.read_text(encoding="utf-8"))

    def render(self, messages: Sequence[dict[str, Any]], *, max_characters: int) -> str:
        """The prompt, up to where the assistant speaks.

        Raises TemplateFailed with the template's own words, or InputTooLong once it passes `max_characters`.
        """
        parts: list[str] = []
        room = max_characters
        try:
            for part in self._environment.bounded(self._template.generate(**self._variables(messages))):
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
            raise TemplateFailed(f"The model's chat template refused these messages: {exc}", param="messages") from exc
        return "".join(parts)

    @staticmethod
    def _variables(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            "messages": list(messages),
            "add_generation_prompt": True,
            "tools": None,
            "documents": None,
            "bos_token": "",
            "eos_token": "",
        }


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
