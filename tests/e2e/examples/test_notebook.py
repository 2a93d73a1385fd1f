"""`examples/notebook.ipynb`, run in a real Jupyter kernel, whose event loop is running."""

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
NOTEBOOK = Path(__file__).parents[3] / "examples/notebook.ipynb"
# Without `jupyter`, which would run a kernel of the machine's, if there is one.
EXECUTE = """
import sys
from nbclient import NotebookClient
import nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=500, kernel_name="python3", coalesce_streams=True).execute()
nbformat.write(notebook, sys.argv[2])
"""


def printed(path: Path) -> list[str]:
    """What each cell of code shows, its prints and its value; a cell that has not run shows nothing."""
    return ["".join(map(shown, cell["outputs"])) for cell in cells(path)]


def cells(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def shown(output: dict) -> str:
    return "".join(output.get("text", "")) or "".join(output.get("data", {}).get("text/plain", ""))


@pytest.fixture(scope="module")
def executed(frameworks_python, environment, tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("notebook")
    done = subprocess.run(
        [frameworks_python, "-c", EXECUTE, NOTEBOOK, folder / "done.ipynb"],
        env={**environment, "HOME": str(folder), "JUPYTER_PLATFORM_DIRS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return printed(folder / "done.ipynb")


def test_the_outputs_that_are_kept_are_those_of_a_run(executed) -> None:
    kept = printed(NOTEBOOK)
    assert [bool(output) for output in kept] == [bool(output) for output in executed]
    assert [cell["execution_count"] for cell in cells(NOTEBOOK)] == list(range(1, len(kept) + 1))
    assert kept[2] == executed[2], "what was stored, and what was not embedded again"


def test_it_finds_answers_and_refuses_as_it_says(executed) -> None:
    models, vectors, _, found, answer, together, refusal, closed = executed
    assert "'embed@1'" in models
    assert vectors.startswith("embed 1 ")
    assert found.splitlines()[0].endswith("The tax form is due on the last day of May.")
    assert "chat@1" in answer
    assert together == "injection: True | language: en\nlabels: [None, 'toxic']\n"
    assert "insists on embedding space '0123456789abcdef'" in refusal
    assert closed == ""


def test_its_sources_keep_nothing_of_the_machine_that_ran_it() -> None:
    assert set(json.loads(NOTEBOOK.read_text())["metadata"]) == {"kernelspec", "language_info"}
    assert "/tmp" not in NOTEBOOK.read_text()
