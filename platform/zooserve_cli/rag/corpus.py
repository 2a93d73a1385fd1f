"""The demo's corpus: the documentation that every Python carries with it, licence PSF-2.0.

The language reference's topics (`pydoc_data.topics`, 79 in Python 3.11) and the docstrings of the standard library's
public modules, read from their source without importing them: some 300 documents, nothing to download.
"""

import ast
import importlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeGuard

from zooserve.errors import MissingPart

__all__ = ["LICENCE", "NAME", "Page", "read_corpus"]

NAME = "Python documentation"
LICENCE = "PSF-2.0"

# Tests, tools and demos, and tkinter, whose thousand one-line docstrings would be a third of the corpus.
_LEFT_OUT = {
    "distutils", "ensurepip", "idlelib", "lib2to3", "msilib", "pydoc_data", "site-packages", "test", "tests", "tkinter",
    "turtle", "turtledemo",
}  # fmt: skip
# Shorter docstrings say little beyond the name.
_SHORTEST_CHARACTERS = 400


_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Page:
    """A document: what it is called, where it comes from, and its plain text."""

    title: str
    source: str
    text: str


def read_corpus(limit: int | None = None) -> list[Page]:
    """The first `limit` documents, topics first. Raises MissingPart if this Python came without its topics."""
    documents = list(islice(_documents(), limit))
    if not documents:
        raise MissingPart("This Python has no documentation topics (pydoc_data): install its standard library whole.")
    return documents


def _documents() -> Iterator[Page]:
    yield from _topics()
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted([*library.glob("*.py"), *library.glob("*/*.py")]):
        document = _module(path.relative_to(library), path)
        if document is not None:
            yield document


def _topics() -> Iterator[Page]:
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return
    for name, text in sorted(topics.items()):
        title = text.strip().partition("\n")[0].strip('"')
        yield Page(title or name, f"topic {name}", text.strip())


def _module(relative: Path, path: Path) -> Page | None:
    name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
    if any(part.startswith("_") or part in _LEFT_OUT for part in name.split(".")):
        return None
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # the library keeps a few files that are no Python of this version
        return None
    text = "\n\n".join(_docstrings(tree, name))
    return Page(f"Module {name}", f"module {name}", text) if len(text) >= _SHORTEST_CHARACTERS else None


def _docstrings(node: _Documented, name: str) -> Iterator[str]:
    """The docstrings of a module or class and of what is public in it, each under its name.

    Modules and classes get a heading of their own; a function is a paragraph of what it belongs to.
    """
    text = ast.get_docstring(node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if text:
            yield f"{name}: {text}"
        return
    if text or isinstance(node, ast.Module):
        yield f"{name}\n{'=' * len(name)}\n\n{text or ''}"
    for child in sorted(filter(_is_public, node.body), key=lambda child: isinstance(child, ast.ClassDef)):
        yield from _docstrings(child, f"{name}.{child.name}")


def _is_public(node: ast.stmt) -> TypeGuard[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
