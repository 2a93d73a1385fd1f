"""Write docs/sdk-reference.md from the signatures and docstrings of zooserve.sdk: python docs/reference.py [--check]

griffe reads them without importing anything. Public is what `zooserve.sdk` exports, and the errors. Of each client the
blocking half is told: the asynchronous one has the same methods, to be awaited.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "sdk-reference.md"
INTRODUCTION = """# SDK reference

Generated from the docstrings by `make sdk`: edit those. How to use it: [the SDK](sdk.md).

`AsyncZoo`, `AsyncTextStream` and `AsyncCollection` have the methods of `Zoo`, `TextStream` and `Collection`: what
returns there is awaited, what is iterated there is iterated with `async for`, `with` is `async with`, `close` `aclose`.
"""
FIRST = ("Zoo", "TextStream", "Collection")


def page() -> str:
    """All of it, as it is to be."""
    sdk = griffe.load("zooserve.sdk", search_paths=[ROOT / "platform"], submodules=True)
    package = griffe.load("zooserve", search_paths=[ROOT / "platform"])
    names = [name for name in sdk.exports or [] if not str(name).startswith("Async")]
    ordered = sorted(
        map(str, names), key=lambda name: (name not in FIRST, FIRST.index(name) if name in FIRST else name)
    )
    parts = [INTRODUCTION, *(_object(name, _found(sdk, name)) for name in ordered)]
    parts.append(f"## Errors\n\n`zooserve.errors`:\n\n{_docstring(package['errors'])}")
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _found(sdk: griffe.Object, name: str) -> griffe.Object:
    """What an exported name stands for, wherever it is defined."""
    member = sdk[name]
    return member.final_target if member.is_alias else member


def _object(name: str, thing: griffe.Object) -> str:
    if thing.is_function:
        return f"## {name}\n\n{_signature(thing)}\n{_docstring(thing)}"
    return "\n".join([f"## {name}\n", _fields(thing), _docstring(thing), *_members(thing)])


def _fields(kind: griffe.Class) -> str:
    """Of a dataclass or a TypedDict, its fields and what they mean; of the client how it is made."""
    if "dataclass" not in kind.labels and not kind.name.endswith("Fields"):
        return _signature(kind["__init__"], kind.name) if kind.name in FIRST[:1] else ""
    rows = [f"- `{each.name}: {each.annotation}`{_said(each)}" for each in _all_fields(kind)]
    return "\n".join(rows) + "\n"


def _all_fields(kind: griffe.Class) -> Iterator[griffe.Attribute]:
    for base in kind.resolved_bases:
        yield from _all_fields(base)
    for member in kind.members.values():
        if member.is_attribute and member.annotation and "property" not in member.labels and member.name[0] != "_":
            yield member


def _said(member: griffe.Object) -> str:
    return f": {' '.join(member.docstring.value.split())}" if member.docstring else ""


def _members(kind: griffe.Class) -> Iterator[str]:
    """Methods and properties, those that it inherits too."""
    for name, member in kind.all_members.items():
        real = member.final_target if member.is_alias else member
        if name.startswith("_") or not real.docstring or "instance-attribute" in real.labels:
            continue
        if real.is_function:
            yield f"### {kind.name}.{name}\n\n{_signature(real)}\n{_docstring(real)}"
        elif real.is_attribute and "property" in real.labels:
            yield f"`.{name} -> {real.annotation}`{_said(real)}\n"


def _signature(function: griffe.Function, name: str = "") -> str:
    shown = [_parameter(each) for each in _told(function)]
    returns = "" if name else f" -> {_returned(function)}"
    line = f"{name or function.name}({', '.join(shown)}){returns}"
    if len(line) > 100:
        line = f"{name or function.name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){returns}"
    return f"```python\n{line}\n```\n"


def _returned(function: griffe.Function) -> str:
    """What a call gives; of a function that makes a `with` block, the block."""
    given = _plain(function.returns)
    if any(str(each.value) == "contextmanager" for each in function.decorators):
        return f"ContextManager[{given.removeprefix('Iterator[')}"
    return given


def _told(function: griffe.Function) -> Iterator[str | griffe.Parameter]:
    """The parameters without `self`, a star before the first that is given by name alone."""
    starred = False
    for each in function.parameters:
        if each.name == "self":
            continue
        if each.kind is griffe.ParameterKind.keyword_only and not starred:
            starred = True
            yield "*"
        yield each


def _parameter(each: str | griffe.Parameter) -> str:
    if isinstance(each, str):
        return each
    stars = "**" if each.kind is griffe.ParameterKind.var_keyword else ""
    default = "" if each.default is None or stars else f" = {_value(each)}"
    return f"{stars}{each.name}: {_plain(each.annotation)}{default}"


def _value(each: griffe.Parameter) -> str:
    """The default, a constant of the module as what it is."""
    name = str(each.default)
    constant = each.function.module.members.get(name) if each.function else None
    return str(constant.value) if constant is not None and constant.is_attribute else name


def _plain(annotation: object) -> str:
    return str(annotation).strip("\"'")


def _docstring(thing: griffe.Object) -> str:
    """As Markdown: examples and indented blocks become code."""
    told = thing.docstring.value if thing.docstring else ""
    paragraphs = re.split(r"\n\s*\n", told)
    return "\n\n".join(_paragraph(text) for text in paragraphs) + "\n"


def _paragraph(text: str) -> str:
    if text.startswith(">>> "):
        return f"```pycon\n{text}\n```"
    if text.startswith("    "):
        return f"```\n{text}\n```"
    return text


def main() -> str | None:
    """What is wrong, if anything is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where the page is another")
    wanted = page()
    if not parser.parse_args().check:
        PAGE.write_text(wanted, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != wanted:
        return "docs/sdk-reference.md is not as the docstrings have it: run `make sdk`."
    return None


if __name__ == "__main__":
    sys.exit(main())
