"""The examples in the docstrings of what asks no server, and the reference that is made of all of them."""

import doctest
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PURE = sorted(path.stem for path in (ROOT / "platform" / "zooserve" / "sdk").glob("[a-z]*.py"))
WITH_EXAMPLES = {"chat_chunks", "chat_fields", "chat_results"}


@pytest.mark.parametrize("name", PURE)
def test_every_example_is_as_it_says(name: str) -> None:
    ran = doctest.testmod(import_module(f"zooserve.sdk.{name}"))
    assert not ran.failed
    assert ran.attempted or name not in WITH_EXAMPLES


def test_the_reference_is_as_the_docstrings_have_it() -> None:
    command = [sys.executable, str(ROOT / "docs" / "reference.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
