"""requirements/stages.lock is what the Python stages of the zoo import, and no more."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = {"zooserve_ensembles": ROOT / "ensembles", "zooserve": ROOT / "platform"}
DISTRIBUTIONS = {"PIL": "pillow"}
"""Modules that are named unlike the package that brings them."""
OF_THE_STUB = "triton_python_backend_utils"
PYTHON_MODELS = sorted(
    config.parent / "1" / "model.py"
    for config in (ROOT / "model_repository" / "zoo").glob("*/config.pbtxt")
    if re.search(r'^backend: "python"', config.read_text(), re.M)
)


def imports_of(text: str) -> Iterator[str]:
    """Every module that this text imports, inside functions as well."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            # What is imported from a package may be a module of it.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def foreign(texts: list[str]) -> set[str]:
    """The packages of others that these texts need, by way of ours."""
    needed, seen = set(), set()
    waiting = [name for text in texts for name in imports_of(text)]
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if top not in SOURCES:
            needed |= {top} - sys.stdlib_module_names - {OF_THE_STUB}
            continue
        for file in files_of(name):
            if file not in seen:
                seen.add(file)
                waiting += imports_of(file.read_text())
    return {DISTRIBUTIONS.get(top, top) for top in needed}


def files_of(module: str) -> Iterator[Path]:
    """What is run when one of our modules is imported: its packages first."""
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        path = SOURCES[parts[0]].joinpath(*parts[:length])
        yield from (file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file())


def pins(lock: str) -> dict[str, str]:
    """The versions of a lock, by package."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements" / lock).read_text(), re.M))


def test_the_zoo_has_python_stages() -> None:
    assert len(PYTHON_MODELS) > 10
    assert all(model.is_file() for model in PYTHON_MODELS)


def test_the_lock_is_what_the_stages_import() -> None:
    assert foreign([model.read_text() for model in PYTHON_MODELS]) == set(pins("stages.lock"))


@pytest.mark.parametrize(
    "gained",
    ["import requests", "def open(self):\n    from requests import get", "from zooserve.sdk import sse"],
)
def test_a_stage_that_gains_an_import_is_noticed(gained: str) -> None:
    texts = [model.read_text() for model in PYTHON_MODELS]
    assert foreign([*texts, gained]) > set(pins("stages.lock"))


def test_stages_are_served_with_the_versions_that_they_are_tested_with() -> None:
    assert pins("stages.lock").items() <= pins("platform.lock").items()


def test_the_group_of_the_project_names_the_same_packages() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert {re.split(r"[<>=]", requirement)[0] for requirement in groups["stages"]} == set(pins("stages.lock"))
