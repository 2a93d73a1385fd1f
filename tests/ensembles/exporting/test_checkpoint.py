import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from zooserve.errors import ExportFailed
from zooserve_ensembles.exporting.checkpoint import locate, read_checkpoint

OLD, NEW = "sentence_transformers.models", "sentence_transformers.sentence_transformer.modules"


def bi_encoder(folder: Path, pooling: dict[str, Any], *kinds: str, package: str = OLD) -> Path:
    chain = ["Transformer", "Pooling", *kinds]
    paths = ["", *(f"{index}_{kind}" for index, kind in enumerate(chain) if index)]
    modules = [{"path": path, "type": f"{package}.{kind}"} for path, kind in zip(paths, chain, strict=True)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def flags(**modes: bool) -> dict[str, Any]:
    return {"word_embedding_dimension": 8, **{f"pooling_mode_{name}": value for name, value in modes.items()}}


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        (flags(cls_token=False, mean_tokens=True, max_tokens=False), "mean"),
        (flags(cls_token=True, mean_tokens=False), "cls"),
        ({"embedding_dimension": 8, "pooling_mode": "mean", "include_prompt": True}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": ["mean"]}, "mean"),
    ],
)
def test_pooling_is_read_in_both_dialects_of_its_file(tmp_path: Path, config: dict[str, Any], pooling: str) -> None:
    assert read_checkpoint(bi_encoder(tmp_path, config)).pooling == pooling


@pytest.mark.parametrize("package", [OLD, NEW])
def test_normalisation_is_read_from_the_chain_of_modules(tmp_path: Path, package: str) -> None:
    bare, normal = tmp_path / "bare", tmp_path / "normal"
    for folder in (bare, normal):
        folder.mkdir()
    assert not read_checkpoint(bi_encoder(bare, {"pooling_mode": "cls"}, package=package)).normalize
    assert read_checkpoint(bi_encoder(normal, {"pooling_mode": "cls"}, "Normalize", package=package)).normalize


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (flags(max_tokens=True), "pools by pooling_mode_max_tokens"),
        (flags(mean_tokens=True, cls_token=True), "pools by mean and cls"),
        ({"pooling_mode": "lasttoken"}, "pools by lasttoken"),
        ({"pooling_mode": ["cls", "mean"]}, "pools by cls and mean"),
        ({}, "pools by nothing"),
    ],
)
def test_other_pooling_is_refused_by_name(tmp_path: Path, config: dict[str, Any], told: str) -> None:
    with pytest.raises(ExportFailed, match=told):
        read_checkpoint(bi_encoder(tmp_path, config))


def test_a_chain_with_another_module_is_refused_and_shown(tmp_path: Path) -> None:
    with pytest.raises(ExportFailed, match="chains Transformer -> Pooling -> Dense;"):
        read_checkpoint(bi_encoder(tmp_path, {"pooling_mode": "mean"}, "Dense"))


def test_a_sequence_classifier_is_a_cross_encoder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}')
    assert read_checkpoint(tmp_path).kind == "cross-encoder"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"architectures": ["LlamaForCausalLM"]}', "names LlamaForCausalLM"),
        ("{}", "names no architecture"),
        ("{", "is not JSON"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_encoder_is_refused(tmp_path: Path, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ExportFailed, match=told):
        read_checkpoint(tmp_path)


def test_every_file_that_matters_is_hashed_by_its_path(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(bi_encoder(tmp_path, {"pooling_mode": "mean"}))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "README.md").write_text("no part of the model")
    hashes = checkpoint.file_hashes()
    assert list(hashes) == ["1_Pooling/config.json", "model.safetensors", "modules.json"]
    assert hashes["model.safetensors"] == hashlib.sha256(b"weights").hexdigest()


def test_a_local_folder_is_found_without_the_hub(tmp_path: Path) -> None:
    assert locate(str(tmp_path)) == (tmp_path.resolve(), None)
