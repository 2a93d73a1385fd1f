"""`zooserve new` in a zoo of one's own: where things go, and what the catalogue gets."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CATALOGUE = """\
models:
  - name: served
    task: rerank
    runs_on: zoo
    triton: {interactive: served}
    limits: {max_tokens: 256}
    licence: MIT
    source: nowhere
"""


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    folder = tmp_path / "exported"
    folder.mkdir()
    record = {"kind": "bi-encoder", "source": "org/mine", "max_tokens": 64, "dimensions": 4, "pad_id": 0}
    record |= {"pooling": "mean", "normalize": True, "parity": {"max_difference": 1e-7, "texts": 1}}
    (folder / "export.json").write_text(json.dumps(record))
    (folder / "golden.json").write_text('{"made_by": "me", "rows": [{"input": "a", "answer": [1, 0, 0, 0]}]}')
    for name in ("model.onnx", "tokenizer.json"):
        (folder / name).write_text("not looked at here")
    return folder


def new(folder: Path, *arguments: str, catalogue: str = CATALOGUE) -> "subprocess.CompletedProcess[str]":
    file = folder / "zoo.yaml"
    file.write_text(catalogue)
    own = {"ZOOSERVE_CATALOGUE": str(file), "ZOOSERVE_REPOSITORY": str(folder / "repository")}
    command = [sys.executable, "-m", "zooserve_cli", "new", *arguments]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **own}, capture_output=True, text=True, timeout=60, check=False
    )


def test_an_exported_embedder_gets_its_folders_and_its_catalogue_entry(tmp_path: Path, exported: Path) -> None:
    done = new(tmp_path, "model", "mine", "--from", str(exported))
    assert done.returncode == 0, done.stderr
    assert "Added mine to zoo.yaml" in done.stdout
    assert done.stdout.endswith("  zooserve up --models default,mine\n")
    assert sorted(path.name for path in (tmp_path / "repository/zoo").iterdir()) == [
        "mine",
        "mine_encoder",
        "mine_tokenizer",
    ]
    catalogue = (tmp_path / "zoo.yaml").read_text()
    assert catalogue.startswith(CATALOGUE)
    assert "    tokenizer: zoo/mine_tokenizer/1/tokenizer.json\n" in catalogue


def test_a_catalogue_that_does_not_end_in_its_models_is_left_alone(tmp_path: Path, exported: Path) -> None:
    flow = '{"models": []}\n'
    done = new(tmp_path, "model", "mine", "--from", str(exported), catalogue=flow)
    assert done.returncode == 0, done.stderr
    assert "Add this to zoo.yaml, below `models:`\n  - name: mine\n" in done.stdout
    assert (tmp_path / "zoo.yaml").read_text() == flow


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["model", "served"], "served is taken"),
        (["ensemble", "Served"], "'Served' is no name for a model"),
        (["model", ""], "'' is no name for a model"),
        (["model", "mine", "--backend", "caffe"], "There is no beginning for backend 'caffe'"),
        (["model", "mine", "--from", "nothing"], "nothing has no export.json"),
    ],
)
def test_what_cannot_be_begun_is_one_line_and_writes_nothing(tmp_path: Path, arguments: list[str], told: str) -> None:
    done = new(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["zoo.yaml"]


def test_a_repository_of_one_s_own_needs_no_name_that_the_catalogue_lacks(tmp_path: Path) -> None:
    done = new(tmp_path, "ensemble", "served", "--directory", "models")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["served", "served_features", "served_head"]
