"""The committed dashboards are those that the code says, and a change of the vocabulary is seen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "observability/grafana/dashboards"
RENAMED = """
import runpy, sys
from zooserve_observability import {module}
object.__setattr__({module}.{metric}, {field!r}, "renamed")
sys.argv = ["dashboards", "--check", {folder!r}]
runpy.run_module("zooserve_observability.dashboards", run_name="__main__")
"""
HIDDEN = """
import runpy, sys
sys.modules["grafana_foundation_sdk"] = None
sys.argv = ["dashboards", {folder!r}]
runpy.run_module("zooserve_observability.dashboards", run_name="__main__")
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)


def generator(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run("-m", "zooserve_observability.dashboards", *map(str, arguments))


def test_the_committed_files_are_as_generated() -> None:
    checked = generator("--check", COMMITTED)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_writing_makes_the_committed_files_and_removes_what_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "gone.json").write_text("{}")
    assert generator(tmp_path).returncode == 0
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        file.name: file.read_text() for file in COMMITTED.iterdir()
    }


def test_check_names_what_differs_is_missing_or_is_nobodys_and_writes_nothing(tmp_path: Path) -> None:
    generator(tmp_path)
    (tmp_path / "chat.json").write_text("{}")
    (tmp_path / "zoo.json").unlink()
    (tmp_path / "stray.json").write_text("{}")
    before = sorted(tmp_path.iterdir())
    checked = generator("--check", tmp_path)
    assert checked.returncode == 1
    assert [line.split(" ")[0] for line in checked.stderr.splitlines()] == [
        str(tmp_path / name) for name in ("chat.json", "stray.json", "zoo.json")
    ]
    assert "run `make dashboards`" in checked.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("module", "metric", "field", "stale"),
    [
        ("vocabulary", "RETRIES", "name", {"overview"}),
        ("vocabulary", "FIRST_TOKEN", "name", {"chat"}),
        ("vocabulary", "RELEASE_SHARE", "name", {"releases"}),
        ("vocabulary", "MODEL_INFO", "name", {"overview", "chat", "zoo", "releases", "capacity", "slo"}),
        ("foreign", "QUEUE_SUMMARY", "series", {"zoo"}),
        ("foreign", "GPU_MEMORY_USED", "series", {"capacity"}),
    ],
)
def test_a_metric_renamed_in_code_leaves_the_committed_files_stale(
    module: str, metric: str, field: str, stale: set[str]
) -> None:
    checked = run("-c", RENAMED.format(module=module, metric=metric, field=field, folder=str(COMMITTED)))
    assert checked.returncode == 1
    assert {Path(line.split(" ")[0]).stem for line in checked.stderr.splitlines()} == stale


def test_without_grafanas_types_it_says_what_to_install(tmp_path: Path) -> None:
    told = run("-c", HIDDEN.format(folder=str(tmp_path)))
    assert told.returncode == 2
    assert "extra `dev`" in told.stderr
    assert not list(tmp_path.iterdir())


def test_nothing_that_serves_imports_the_generator() -> None:
    code = (
        "import sys, zooserve_router.app, zooserve_cli.main; "
        "print([name for name in sys.modules if 'dashboards' in name or 'grafana' in name])"
    )
    imported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert imported.stdout.strip() == "[]"
