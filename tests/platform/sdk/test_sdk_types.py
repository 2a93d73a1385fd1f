"""A program that uses the SDK is type-checked strictly against the package as it is installed."""

import re
import subprocess
import sys

import pytest

RIGHT = """
from collections.abc import AsyncIterator

from zooserve import AsyncZoo, Zoo, errors
from zooserve.sdk import ChatAnswer, Embeddings, TextStream


def ask(zoo: Zoo) -> list[float]:
    made: Embeddings = zoo.embed(["a", "b"], input_type="query", progress=lambda done, total: None)
    space: str = made.space
    shape: tuple[int, ...] = made.numpy().shape
    answer: ChatAnswer = zoo.chat([{"role": "user", "content": "a"}], temperature=0.5, max_tokens=4)
    tokens: int = answer.usage.total_tokens if answer.usage else 0
    scores: list[float] = [document.score for document in zoo.rerank("a", ["b"])]
    with zoo.chat_stream("a", stop=["b"]) as stream:
        told: TextStream[ChatAnswer] = stream
        texts: list[str] = list(told)
        whole: ChatAnswer = stream.answer
    return made.vectors[0]


async def tell(zoo: AsyncZoo) -> AsyncIterator[str]:
    async with zoo.complete_stream("a", max_tokens=4, echo=True) as stream:
        async for text in stream:
            yield text
    async for part in zoo.embed_stream(str(number) for number in range(3)):
        dimensions: int = part.dimensions


def refused(error: errors.Overloaded) -> float | None:
    return error.retry_after_s
"""
WRONG = """
from zooserve import Zoo

zoo = Zoo(timeout="1")
zoo.embed(5)
zoo.embed("a", input_type="sentence")
zoo.chat("a", max_token=4)
zoo.chat("a", temperature="hot")
with zoo.chat_stream("a") as stream:
    number: int = stream.answer.text
"""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int]]:
    """Where mypy finds errors in the two programs: file and line. What they import is not looked at."""
    folder = tmp_path_factory.mktemp("programs")
    for name, program in (("right.py", RIGHT), ("wrong.py", WRONG)):
        (folder / name).write_text(program)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-incremental",
        "--follow-imports=silent",
        "--config-file=",
    ]
    told = subprocess.run([*command, "right.py", "wrong.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert told.returncode in (0, 1), told.stdout + told.stderr
    found = re.findall(r"^(\w+\.py):(\d+): error:", told.stdout, re.MULTILINE)
    return [(name, int(line)) for name, line in found]


def test_a_right_program_passes(complaints: list[tuple[str, int]]) -> None:
    assert not [line for name, line in complaints if name == "right.py"]


def test_each_wrong_line_is_found(complaints: list[tuple[str, int]]) -> None:
    assert {line for name, line in complaints if name == "wrong.py"} == {4, 5, 6, 7, 8, 10}
