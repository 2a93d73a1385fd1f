"""The blocks of docs/integrations.md, as they stand there, with the frameworks that `make integrations` installs."""

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
PAGE = Path(__file__).parents[3] / "docs/integrations.md"
BLOCKS = {
    heading: block
    for heading, section in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for block in re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
}


@pytest.fixture
def printed(frameworks_python, environment, tmp_path):
    """Runs the blocks below some headings, one after the other, and returns the lines that they print."""

    def run(*headings: str) -> list[str]:
        done = subprocess.run(
            [frameworks_python, "-c", "\n".join(BLOCKS[heading] for heading in headings)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()

    return run


def test_every_block_of_python_is_run_here() -> None:
    assert PAGE.read_text().count("```python\n") == len(BLOCKS) == 3


def test_langchain_embeds_searches_reranks_streams_and_is_held_to_a_space(printed) -> None:
    first, second, *text, vectors, refusal = printed("LangChain", "One space")  # together: its import takes seconds
    assert_answered(first, second, text)
    assert vectors.endswith("384")
    assert refusal == "embedding_space_mismatch"


def test_llamaindex_embeds_searches_reranks_and_streams(printed) -> None:
    first, second, *text = printed("LlamaIndex")
    assert_answered(first, second, text)


def assert_answered(first: str, second: str, text: list[str]) -> None:
    assert first.startswith("releases.md "), "the passage that answers the question comes first"
    assert float(first.split()[1]) > float(second.split()[1])
    assert "".join(text).strip()
