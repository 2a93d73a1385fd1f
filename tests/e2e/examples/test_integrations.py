"""The blocks of docs/integrations.md, as they stand there, with the frameworks that `make integrations` installs."""

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
PAGE = Path(__file__).parents[3] / "docs/integrations.md"
BLOCKS = {
    heading: block
    for heading, section in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for block in re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
}


@pytest.fixture
def printed(frameworks_python, environment, tmp_path):
    """Runs the block below a heading, and returns the lines that it prints."""

    def run(heading: str) -> list[str]:
        done = subprocess.run(
            [frameworks_python, "-c", BLOCKS[heading]],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()

    return run


def test_every_block_of_python_is_run_here() -> None:
    assert PAGE.read_text().count("```python\n") == len(BLOCKS) == 3


@pytest.mark.parametrize("framework", ["LangChain", "LlamaIndex"])
def test_a_framework_embeds_searches_reranks_and_streams(printed, framework) -> None:
    first, second, *text = printed(framework)
    assert first.startswith("releases.md "), "the passage that answers the question comes first"
    assert float(first.split()[1]) > float(second.split()[1])
    assert "".join(text).strip()


def test_a_client_is_held_to_its_collections_space(printed) -> None:
    vectors, refusal = printed("One space")
    assert vectors == "384"
    assert "embedding_space_mismatch" in refusal
