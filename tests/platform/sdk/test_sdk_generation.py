"""The blocking half is what the generator writes of the asynchronous one, and has every method of it."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import zooserve
from zooserve import AsyncZoo, Zoo, sdk

ROOT = Path(__file__).parents[3]
GENERATOR = ROOT / "platform" / "generation" / "blocking_sdk.py"
SDK = ROOT / "platform" / "zooserve" / "sdk"
BY_HAND = ("concurrency", "connections")
GENERATED = sorted(
    path for path in (SDK / "blocking").glob("*.py") if path.name != "__init__.py" and path.stem not in BY_HAND
)


def test_the_blocking_half_is_up_to_date() -> None:
    checked = subprocess.run([sys.executable, str(GENERATOR), "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_a_generated_file_says_so_and_awaits_nothing(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# Generated from ../aio/{path.name} by `make sdk`")
    awaiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not [node for node in ast.walk(ast.parse(text)) if isinstance(node, awaiting)]
    assert "Async" not in text


def test_both_clients_have_the_same_methods_and_arguments() -> None:
    def surface(kind: type) -> dict[str, list[str]]:
        return {
            name.removeprefix("a") if name == "aclose" else name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(kind, callable)
            if not name.startswith("_")
        }

    assert surface(AsyncZoo) == surface(Zoo)
    assert {
        "embed",
        "embed_stream",
        "embed_sparse",
        "rerank",
        "classify",
        "rag_query",
        "models",
        "model",
        "close",
    } <= set(surface(Zoo))


@pytest.mark.parametrize("name", BY_HAND)
def test_both_hand_written_modules_have_the_same_names(name: str) -> None:
    halves = [import_module(f"zooserve.sdk.{half}.{name}") for half in ("aio", "blocking")]
    assert halves[0].__all__ == halves[1].__all__


def test_the_package_exports_the_clients_and_nothing_it_does_not_have() -> None:
    assert zooserve.Zoo is sdk.Zoo
    assert all(hasattr(zooserve, name) and name in dir(zooserve) for name in zooserve.__all__)
    assert all(hasattr(sdk, name) for name in sdk.__all__)
    with pytest.raises(AttributeError, match="Zooo"):
        zooserve.Zooo  # noqa: B018
