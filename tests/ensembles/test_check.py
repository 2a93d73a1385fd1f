"""The checker, against the committed zoo and against copies of it with one fault each."""

import shutil
from pathlib import Path

import pytest

from zooserve_ensembles.check import check_repository

ZOO = Path(__file__).parents[2] / "model_repository" / "zoo"
WEIGHTS = shutil.ignore_patterns("model.onnx", "tokenizer.json", "vocabulary.json", "__pycache__")


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """A copy of the zoo without its weights, to break."""
    return Path(shutil.copytree(ZOO, tmp_path / "zoo", ignore=WEIGHTS))


def edit(zoo: Path, model: str, old: str, new: str, file: str = "config.pbtxt") -> None:
    """Replace each `old` in a configuration; it must be there."""
    path = zoo / model / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_committed_zoo_has_no_fault() -> None:
    assert check_repository(ZOO) == []


FAULTS = [
    ("embed", "max_batch_size", "max_batchsize", 'has no field named "max_batchsize"'),
    ("embed_encoder", 'name: "embed_encoder"', 'name: "encoder"', "its folder is called embed_encoder"),
    ("embed", 'model_name: "embed_encoder"', 'model_name: "encoder"', "step encoder is not in this repository"),
    ("embed", "model_version: 1", "model_version: 2", "pinned to version 2, which has no folder"),
    ("embed", "max_batch_size: 64", "max_batch_size: 65", "max_batch_size 65 is above embed_tokenizer's 64"),
    ("embed_encoder", "max_batch_size: 64", "max_batch_size: 8", "max_batch_size 64 is above embed_encoder's 8"),
    (
        "embed",
        'input_map { key: "attention_mask" value: "attention_mask" }',
        "",
        "leaves its input attention_mask open",
    ),
    (
        "embed",
        'key: "input_ids" value: "input_ids"',
        'key: "ids" value: "input_ids"',
        "maps ids, which that model does",
    ),
    ("rerank", 'output_map { key: "score" value: "score" }', "", "output score takes score, which no step before"),
    ("embed", 'name: "embedding" data_type: TYPE_FP32', 'name: "embedding" data_type: TYPE_FP16', "is TYPE_FP16 [384]"),
    (
        "injection_head",
        "dims: [ 384 ]",
        "dims: [ 768 ]",
        "is TYPE_FP32 [768], but sentence_embedding is TYPE_FP32 [384]",
    ),
    ("rag_query", 'value: "sentence_embedding"', 'value: "embedding"', "output embedding is also a step's input"),
    ("rerank_maxsim", 'name: "bucket_64"\n    batch_size: 2', 'name: "x" batch_size: 2', None),
    ("rerank_encoder", "dims: [ 64 ]", "dims: [ 65 ]", "no warm-up of input_ids at 64"),
    ("embed_tokenizer", 'input_data_file: "bucket_16"', 'input_data_file: "gone"', "reads warmup/gone for text"),
    ("embed_tokenizer", 'name: "bucket_32"', 'name: "other"', "no warm-up called bucket_32"),
    ("embed_encoder", "allow_timeout_override: true", "", "a request's own timeout is ignored"),
    ("embed_encoder", "allow_timeout_override: true", "allow_timeout_override: true max_queue_size: 9", "wedge"),
]


@pytest.mark.parametrize(("model", "old", "new", "says"), FAULTS)
def test_each_fault_is_found_and_named(zoo: Path, model: str, old: str, new: str, says: str | None) -> None:
    edit(zoo, model, old, new)
    problems = check_repository(zoo)
    assert any(says in problem for problem in problems) if says else problems == []


def test_a_parse_error_names_file_line_and_column(zoo: Path) -> None:
    edit(zoo, "embed", "max_batch_size", "max_batchsize")
    assert check_repository(zoo)[0].startswith("embed/config.pbtxt:4:1 ")


def test_a_model_without_a_version_folder_is_found(zoo: Path) -> None:
    shutil.rmtree(zoo / "rag_query" / "1")
    assert any("rag_query: there is no version folder" in problem for problem in check_repository(zoo))


def test_an_ensemble_with_a_warm_up_is_found(zoo: Path) -> None:
    path = zoo / "embed" / "config.pbtxt"
    path.write_text(path.read_text() + 'model_warmup [ { name: "x" batch_size: 1 } ]\n')
    assert check_repository(zoo) == ["embed: an ensemble with model_warmup does not load: warm its stages"]


def test_a_model_without_a_warm_up_is_found(zoo: Path) -> None:
    path = zoo / "injection_head" / "config.pbtxt"
    path.write_text(path.read_text().partition("model_warmup")[0])
    assert any("injection_head: it has no model_warmup" in problem for problem in check_repository(zoo))


def test_a_variant_with_other_tensors_is_found(zoo: Path) -> None:
    edit(zoo, "embed_encoder", "dims: [ 384 ]", "dims: [ 385 ]", "configs/gpu.pbtxt")
    assert any("configs/gpu.pbtxt has another" in problem for problem in check_repository(zoo))
