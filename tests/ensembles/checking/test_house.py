"""What only our zoo is held to: it stays as rendered, its stages are warm, its weights are fetched."""

import shutil
from pathlib import Path

import pytest

from zooserve_ensembles.checking import check_repository

ROOT = Path(__file__).parents[3]
ZOO = ROOT / "model_repository" / "zoo"
MODELS = ("embed", "embed_tokenizer", "embed_encoder", "classify", "classify_tokenizer", "classify_encoder")
FETCHED = {
    Path("embed_tokenizer/1/tokenizer.json"),
    Path("embed_encoder/1/model.onnx"),
    Path("classify_tokenizer/1/vocabulary.json"),
    Path("classify_encoder/1/model.onnx"),
}


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """A copy of a part of the zoo without its weights, to break."""
    without = shutil.ignore_patterns(*(path.name for path in FETCHED), "__pycache__")
    for name in MODELS:
        shutil.copytree(ZOO / name, tmp_path / "zoo" / name, ignore=without)
    return tmp_path / "zoo"


def told(zoo: Path) -> list[tuple[str, int, str]]:
    report = check_repository(zoo, fetched=FETCHED)
    return [(str(each.place.file.relative_to(zoo)), each.place.line, each.rule) for each in report.findings]


def edit(file: Path, old: str, new: str) -> int:
    """Replace the first `old`; the line it stood on."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    return text[: text.index(old)].count("\n") + 1


def test_a_clean_clone_passes_with_one_word_on_its_weights(zoo: Path) -> None:
    report = check_repository(zoo, fetched=FETCHED)
    assert [finding.rule for finding in report.findings] == ["not-fetched"]
    assert "zooserve fetch" in report.findings[0].message
    assert report.passes()


def test_an_edit_after_rendering_is_told_at_its_line(zoo: Path) -> None:
    line = edit(zoo / "embed_encoder" / "config.pbtxt", "max_batch_size: 64", "max_batch_size: 128")
    assert ("embed_encoder/config.pbtxt", line, "edited-after-rendering") in told(zoo)


def test_an_edit_of_a_rendered_variant_or_stage_too(zoo: Path) -> None:
    edit(zoo / "embed_encoder" / "configs" / "gpu.pbtxt", "count: 1", "count: 2")
    edit(zoo / "embed_tokenizer" / "1" / "model.py", "import", "import  ")
    (zoo / "embed_tokenizer" / "warmup" / "bucket_16").unlink()
    edited = {file for file, _, rule in told(zoo) if rule == "edited-after-rendering"}
    assert edited == {
        "embed_encoder/configs/gpu.pbtxt",
        "embed_tokenizer/1/model.py",
        "embed_tokenizer/warmup/bucket_16",
    }


def test_a_rendered_model_that_no_definition_makes(zoo: Path) -> None:
    shutil.copytree(zoo / "embed", zoo / "embed_old")
    edit(zoo / "embed_old" / "config.pbtxt", '"embed"', '"embed_old"')
    assert told(zoo) == [(".", 0, "not-fetched"), ("embed_old/config.pbtxt", 1, "rendered-without-definition")]


def test_a_step_that_floats_is_an_error_in_the_zoo(zoo: Path) -> None:
    config = zoo / "classify" / "config.pbtxt"
    config.write_text(config.read_text().replace("model_version: 1", "model_version: -1"))
    assert [rule for _, _, rule in told(zoo)].count("floating-version") == 2
    assert not check_repository(zoo).passes()


def test_a_timeout_that_cannot_be_overridden_is_an_error_in_the_zoo(zoo: Path) -> None:
    line = edit(zoo / "classify_encoder" / "config.pbtxt", "    allow_timeout_override: true\n", "")
    assert ("classify_encoder/config.pbtxt", line - 3, "timeout-ignored") in told(zoo)


def test_a_stage_without_warm_up(zoo: Path) -> None:
    config = zoo / "classify_encoder" / "config.pbtxt"
    config.write_text(config.read_text().partition("model_warmup")[0])
    assert ("classify_encoder/config.pbtxt", 2, "warmup-missing") in told(zoo)


def test_a_stage_without_a_bucket(zoo: Path) -> None:
    edit(zoo / "embed_encoder" / "config.pbtxt", "dims: [ 32 ]", "dims: [ 33 ]")
    messages = [finding.message for finding in check_repository(zoo, fetched=FETCHED).findings]
    assert any(message.startswith("no warm-up of ") and message.endswith(" at 32") for message in messages)


def test_a_model_with_some_of_its_files_is_half_fetched(zoo: Path) -> None:
    fetched = {Path("embed_encoder/1/model.onnx"), Path("embed_encoder/1/more.bin")}
    (zoo / "embed_encoder" / "1" / "more.bin").write_bytes(b"more")
    findings = check_repository(zoo, fetched=fetched).findings
    assert ("embed_encoder/1/model.onnx", "half-fetched") in [
        (str(each.place.file.relative_to(zoo)), each.rule) for each in findings
    ]
