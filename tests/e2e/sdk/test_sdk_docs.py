"""The examples of docs/sdk.md, and those of the client's docstrings, run as they stand."""

import ast
import asyncio
import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from zooserve import Zoo
from zooserve.sdk.blocking import chat, client

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[3] / "docs" / "sdk.md"


def blocks(text: str) -> list[tuple[int, str]]:
    """The Python blocks of a page, each with the line where it begins."""
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text[: each.start(1)].count("\n"), each.group(1)) for each in found]


def run_block(source: str, line: int, names: dict[str, Any]) -> None:
    """As a notebook does: with a plain `await` too."""
    code = compile("\n" * line + source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def test_every_example_of_the_page_runs(
    platform: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZOOSERVE_URL", platform.url)
    names: dict[str, Any] = {}
    examples = blocks(PAGE.read_text())
    assert len(examples) >= 9
    for line, source in examples:
        run_block(source, line, names)
    names["zoo"].close()
    printed = capsys.readouterr().out
    assert "Paris" in printed
    assert "300 of 300" in printed
    assert "There was no whole answer within 0.05 s" in printed
    assert "input[0] context_length_exceeded 400 req_" in printed
    assert "Nobody answers at http://127.0.0.1:9" in printed


@pytest.mark.parametrize("module", [chat, client], ids=["chat", "client"])
def test_every_example_of_the_client_is_as_it_says(
    platform: Any, module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ZOOSERVE_URL", platform.url)
    with Zoo() as zoo:
        ran = doctest.testmod(module, extraglobs={"zoo": zoo, "folder": tmp_path})
    assert ran.attempted
    assert not ran.failed
