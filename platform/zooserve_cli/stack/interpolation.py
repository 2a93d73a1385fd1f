"""Variables in texts, replaced as Docker Compose does it: `$$`, `$A`, `${A}`, `${A:-d}`, `${A:?m}`, `${A:+r}`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Fault", "Interpolated", "Use", "interpolated"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATORS = (":-", ":?", ":+", "-", "?", "+")
_DEEPEST = 20


@dataclass(frozen=True)
class Use:
    """One place that names a variable."""

    name: str
    offset: int
    """Of the `$` in the text."""
    operator: str = ""
    argument: str = ""
    """The default, the message or the replacement, as it is written."""

    @property
    def may_be_missing(self) -> bool:
        """Whether the text says itself what holds without the variable."""
        return self.operator in (":-", "-", ":+", "+")

    @property
    def may_be_empty(self) -> bool:
        """Whether an empty value is foreseen."""
        return self.operator in (":-", ":+", "+", "-")


@dataclass(frozen=True)
class Fault:
    """A place that Compose refuses to interpolate."""

    offset: int
    message: str


@dataclass(frozen=True)
class Interpolated:
    """A text with its variables replaced, which they were, and what could not be."""

    text: str
    uses: tuple[Use, ...] = ()
    faults: tuple[Fault, ...] = ()


def interpolated(text: str, variables: Mapping[str, str], depth: int = 0) -> Interpolated:
    """The text as Compose hands it on. A variable that is not set counts as empty, as there."""
    if depth > _DEEPEST:
        return Interpolated(text, faults=(Fault(0, "variables are nested too deep"),))
    parts: list[str] = []
    uses: list[Use] = []
    faults: list[Fault] = []
    position = 0
    for start, end, use in _found(text):
        parts.append(text[position:start])
        position = end
        if isinstance(use, str):
            parts.append(use)
        elif isinstance(use, Fault):
            parts.append(text[start:end])
            faults.append(use)
        else:
            uses.append(use)
            inner = _value(use, variables, depth)
            parts.append(inner.text)
            uses += [Use(one.name, start, one.operator, one.argument) for one in inner.uses]
            faults += [Fault(start, one.message) for one in inner.faults]
    parts.append(text[position:])
    return Interpolated("".join(parts), tuple(uses), tuple(faults))


def _value(use: Use, variables: Mapping[str, str], depth: int) -> Interpolated:
    value = variables.get(use.name)
    is_set = bool(value) if use.operator.startswith(":") else value is not None
    inner = interpolated(use.argument, variables, depth + 1) if use.operator else Interpolated("")
    match use.operator.lstrip(":"):
        case "-":
            return Interpolated(value or "", inner.uses, inner.faults) if is_set else inner
        case "+":
            return inner if is_set else Interpolated("", inner.uses, inner.faults)
    return Interpolated(value or "", inner.uses, inner.faults)


def _found(text: str) -> Iterator[tuple[int, int, Use | Fault | str]]:
    """From where to where something stands that begins with `$`, and what it is."""
    position = 0
    while (start := text.find("$", position)) >= 0:
        end, found = _one(text, start)
        yield start, end, found
        position = end


def _one(text: str, start: int) -> tuple[int, Use | Fault | str]:
    after = text[start + 1 : start + 2]
    if after == "$":
        return start + 2, "$"
    if after == "{":
        return _braced(text, start)
    if name := _NAME.match(text, start + 1):
        return name.end(), Use(name[0], start)
    return start + 1, "$"  # as Compose has it: before a blank, a digit or a bracket it stands for itself


def _braced(text: str, start: int) -> tuple[int, Use | Fault]:
    end = _closing(text, start + 2)
    if end is None:
        return len(text), Fault(start, "`${` is not closed by `}`")
    inside = text[start + 2 : end]
    name = _NAME.match(inside)
    if name is None:
        return end + 1, Fault(start, f"`${{{inside}}}` names no variable")
    rest = inside[name.end() :]
    if not rest:
        return end + 1, Use(name[0], start)
    for operator in _OPERATORS:
        if rest.startswith(operator):
            return end + 1, Use(name[0], start, operator, rest[len(operator) :])
    return end + 1, Fault(start, f"`${{{inside}}}` is no form that Compose knows: ${{NAME}}, ${{NAME:-default}}, ...")


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for position in range(start, len(text)):
        if text.startswith("${", position):
            depth += 1
        elif text[position] == "}":
            if depth == 0:
                return position
            depth -= 1
    return None
