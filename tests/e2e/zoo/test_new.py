"""`zooserve new` as a user meets it: what it makes passes the checker and its own test, over a real Triton, at once."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[3]


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", *command]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)


def test_what_is_begun_passes_the_checker_and_is_served_with_its_golden_answers(tmp_path: Path) -> None:
    begun = {"graph": ["model", "--backend", "onnxruntime"], "code": ["model", "--backend", "python"]}
    for name, (kind, *options) in {**begun, "pair": ["ensemble"]}.items():
        made = run("zooserve_cli", "new", kind, name, *options, "--directory", str(tmp_path))
        assert made.returncode == 0, made.stderr
        assert f"  {name}/config.pbtxt\n" in made.stdout
        assert f"zooserve ensembles check {tmp_path}" in made.stdout
    checked = run("zooserve_cli", "ensembles", "check", "--strict", str(tmp_path))
    assert checked.returncode == 0, checked.stdout
    tested = run("pytest", str(tmp_path), "-q", "-c", str(ROOT / "pyproject.toml"))
    assert "3 passed" in tested.stdout, tested.stdout


def test_names_of_the_catalogue_are_taken_in_the_zoo() -> None:
    refused = run("zooserve_cli", "new", "model", "embed")
    assert refused.returncode == 1
    assert refused.stderr.startswith("embed is taken")
