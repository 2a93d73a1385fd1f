"""`zooserve ensembles render`, `draw` and `list`, run in this process."""

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import Result
from typer.testing import CliRunner

from zooserve_cli.main import app

ROOT = Path(__file__).parents[3]
CONFIG = Path("embed_tokenizer/config.pbtxt")


def ensembles(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["ensembles", *arguments])


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the repository's configurations, to be spoilt."""
    repository = tmp_path / "model_repository"
    no_weights = shutil.ignore_patterns("*.onnx", "*.json", "*.np?")
    shutil.copytree(ROOT / "model_repository" / "zoo", repository / "zoo", ignore=no_weights)
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "ensembles.md", tmp_path / "docs")
    monkeypatch.setenv("ZOOSERVE_REPOSITORY", str(repository))
    return repository / "zoo"


def test_what_is_committed_passes(zoo: Path) -> None:
    assert ensembles("render", "--check").exit_code == 0


def test_an_edit_by_hand_fails_with_a_diff_and_is_left_alone(zoo: Path) -> None:
    spoilt = (zoo / CONFIG).read_text().replace("max_queue_size: 1024", "max_queue_size: 1")
    (zoo / CONFIG).write_text(spoilt)
    done = ensembles("render", "--check")
    assert done.exit_code == 1
    assert "-    max_queue_size: 1\n+    max_queue_size: 1024\n" in done.stdout
    assert (zoo / CONFIG).read_text() == spoilt


@pytest.mark.parametrize("arguments", [["--check"], ["embed"]])
def test_nothing_is_rendered_outside_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ensembles("render", *arguments)
    assert done.exit_code == 2
    assert "run from the checkout" in " ".join(done.output.split())
    assert not list(tmp_path.iterdir())


def test_rendering_mends_it(zoo: Path) -> None:
    (zoo / CONFIG).unlink()
    assert f"wrote {CONFIG}" in ensembles("render").stdout
    assert ensembles("render", "--check").exit_code == 0


def test_rendering_one_model_leaves_the_others(zoo: Path) -> None:
    for name in ("embed", "rerank"):
        (zoo / name / "config.pbtxt").unlink()
    assert ensembles("render", "embed").stdout == "wrote embed/config.pbtxt\n"


def test_an_old_drawing_in_the_docs_fails_the_check(zoo: Path) -> None:
    page = zoo.parents[1] / "docs" / "ensembles.md"
    page.write_text(page.read_text().replace("embed_tokenizer", "embed_splitter"))
    done = ensembles("render", "--check")
    assert done.exit_code == 1
    assert "ensembles.md (rendered)" in done.stdout


def test_a_rendered_model_without_a_definition_fails_the_check(zoo: Path) -> None:
    shutil.copytree(zoo / "embed", zoo / "embed_old")
    done = ensembles("render", "--check")
    assert done.exit_code == 1
    assert "embed_old was rendered once" in done.stdout


def test_an_unknown_model_is_told_with_near_names(zoo: Path) -> None:
    done = ensembles("render", "embed_tokeniser")
    assert done.exit_code == 2
    assert "did you mean embed_tokenizer" in done.stderr


def test_an_ensemble_is_drawn_as_mermaid(zoo: Path) -> None:
    assert ensembles("draw", "embed").stdout.startswith("flowchart TD\n")


def test_an_ensemble_is_drawn_as_what_the_suffix_says(zoo: Path, tmp_path: Path) -> None:
    picture, text, page = (tmp_path / f"embed.{suffix}" for suffix in ("svg", "mmd", "md"))
    for file in (picture, text, page):
        assert ensembles("draw", "embed", "--output", str(file)).exit_code == 0
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    assert text.read_text().startswith("flowchart TD\n")
    assert page.read_text() == f"```mermaid\n{text.read_text()}```\n"


def test_a_format_that_is_asked_for_outweighs_the_suffix(zoo: Path, tmp_path: Path) -> None:
    assert ensembles("draw", "embed", "--format", "svg").stdout.startswith("<svg ")
    assert ensembles("draw", "embed", "--format", "svg", "--output", str(tmp_path / "embed")).exit_code == 0
    assert (tmp_path / "embed").read_text().startswith("<svg ")


@pytest.mark.parametrize("name", ["embed.png", "embed"])
def test_a_file_of_another_format_is_refused_with_those_there_are(zoo: Path, tmp_path: Path, name: str) -> None:
    done = ensembles("draw", "embed", "--output", str(tmp_path / name))
    assert done.exit_code == 2
    assert ".svg for a picture" in done.stderr
    assert not (tmp_path / name).exists()


def test_a_drawing_that_cannot_be_written_is_told(zoo: Path, tmp_path: Path) -> None:
    done = ensembles("draw", "embed", "--output", str(tmp_path / "none" / "embed.svg"))
    assert done.exit_code == 2
    assert "No such file or directory" in done.stderr


def test_an_ensemble_of_another_repository_is_drawn(zoo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for name in ("embed", "embed_tokenizer"):
        shutil.copytree(zoo / name, other / name)
    (other / "embed" / "config.pbtxt").write_text(
        re.sub("^#.*\n", "", (zoo / "embed" / "config.pbtxt").read_text(), flags=re.MULTILINE)
    )
    drawn = ensembles("draw", "embed", "--repository", str(other)).stdout
    assert "embed_tokenizer</b><br/>version 1, python" in drawn
    assert "embed_encoder</b><br/>version 1, no configuration here" in drawn


def test_an_unknown_ensemble_is_told_with_near_names(zoo: Path) -> None:
    done = ensembles("draw", "rerank_blk")
    assert done.exit_code == 2
    assert "did you mean rerank_bulk" in done.stderr


def test_a_repository_without_ensembles_is_told(tmp_path: Path) -> None:
    assert "holds no ensemble" in ensembles("draw", "embed", "--repository", str(tmp_path)).stderr


def test_pipelines_are_listed_with_their_class(zoo: Path) -> None:
    assert re.search(r"embed_bulk +bulk", ensembles("list").stdout)
