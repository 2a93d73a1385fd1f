"""Which folders of a repository Triton is told to load, for a catalogue of which not everything is enabled."""

from pathlib import Path

import pytest

from zooserve.catalogue import Catalogue, load_catalogue
from zooserve.processes.ports import reserved_ports
from zooserve.triton.installation import Installation
from zooserve.triton.reach import unwanted_models, wanted_models
from zooserve.triton.server import Addresses, TritonServer

CATALOGUE = """\
models:
  - name: embed
    task: embed
    runs_on: zoo
    triton: {interactive: embed, bulk: embed_bulk}
    encoder: {interactive: embed_encoder}
    limits: {max_tokens: 256}
    dimensions: 384
    licence: MIT
    source: somewhere
  - name: injection
    optional: true
    task: classify
    runs_on: zoo
    triton: {interactive: injection}
    limits: {max_tokens: 256}
    labels: [prompt_injection]
    licence: MIT
    source: somewhere
"""
FOLDERS = {
    "embed": ["embed_tokenizer", "embed_encoder"],
    "embed_bulk": ["embed_bulk_encoder"],
    "injection": ["embed_tokenizer", "embed_encoder", "injection_head"],
    "embed_tokenizer": [],
    "embed_encoder": [],
    "embed_bulk_encoder": [],
    "injection_head": [],
    "nobodys": [],
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, members in FOLDERS.items():
        folder = tmp_path / "zoo" / name
        folder.mkdir(parents=True)
        steps = " ".join(f'{{ model_name: "{member}" model_version: 1 }}' for member in members).replace("} {", "}, {")
        scheduling = f"ensemble_scheduling {{ step [ {steps} ] }}" if members else ""
        (folder / "config.pbtxt").write_text(f'name: "{name}"\n# model_name: "nobodys"\n{scheduling}\n')
    (tmp_path / "zoo" / ".cache").mkdir()
    (tmp_path / "zoo" / "README.md").touch()
    return tmp_path / "zoo"


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    (tmp_path / "zoo.yaml").write_text(CATALOGUE)
    return load_catalogue(tmp_path / "zoo.yaml")


def test_what_only_a_model_that_is_not_enabled_reaches_is_left_out(repository: Path, catalogue: Catalogue) -> None:
    by_default = catalogue.enabling("default")
    assert wanted_models(repository, by_default) == sorted(FOLDERS.keys() - {"injection", "injection_head"})
    assert unwanted_models(repository, by_default) == {"injection", "injection_head"}


def test_with_every_model_enabled_every_folder_is_wanted_and_no_hidden_one(
    repository: Path, catalogue: Catalogue
) -> None:
    assert wanted_models(repository, catalogue.enabling("all")) == sorted(FOLDERS)


def test_a_stage_is_wanted_by_one_of_the_two_that_share_it(repository: Path, catalogue: Catalogue) -> None:
    wanted = wanted_models(repository, catalogue.enabling("injection"))
    assert wanted == ["embed_encoder", "embed_tokenizer", "injection", "injection_head", "nobodys"]


def test_a_broken_configuration_does_not_keep_the_others_from_being_told_apart(
    repository: Path, catalogue: Catalogue
) -> None:
    (repository / "injection" / "config.pbtxt").write_text("step {")
    assert unwanted_models(repository, catalogue.enabling("default")) == {"injection"}


def test_no_repository_has_no_models(tmp_path: Path, catalogue: Catalogue) -> None:
    assert wanted_models(tmp_path / "absent", catalogue) == []


def test_triton_is_told_to_load_each_wanted_model_by_name(tmp_path: Path) -> None:
    installation = Installation(tmp_path / "tritonserver", tmp_path, tmp_path, {})
    addresses = Addresses("127.0.0.1", *reserved_ports(3))
    server = TritonServer("zoo", installation, tmp_path, addresses, tmp_path / "log", models=["embed", "rerank"])
    loads = [word for word in server.command() if word.startswith("--load-model")]
    assert loads == ["--load-model=embed", "--load-model=rerank"]
