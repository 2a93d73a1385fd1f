"""What is committed is what the definitions say, and an edit by hand is seen."""

from dataclasses import replace
from pathlib import Path

import pytest

from zooserve_ensembles.families import FAMILIES
from zooserve_ensembles.families.transformer import encoder, tokenizer
from zooserve_ensembles.family import Family, generated_members, written_models
from zooserve_ensembles.member import Warmup, text_of
from zooserve_ensembles.pipeline import BadDefinition, Dtype, Tensor
from zooserve_ensembles.rendering import HEADER, difference, is_rendered, orphans, rendered_files, written

ZOO = Path(__file__).parents[2] / "model_repository" / "zoo"
CONFIG = Path("toy_tokenizer/config.pbtxt")
TOY = (Family(members=(tokenizer("toy_tokenizer", "toy"),)),)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    written(tmp_path, rendered_files(TOY))
    return tmp_path


def test_the_committed_zoo_is_what_the_definitions_say() -> None:
    assert difference(ZOO, rendered_files()) == ""
    assert orphans(ZOO) == []


def test_every_model_that_a_pipeline_needs_is_there() -> None:
    models = [*generated_members(FAMILIES), *written_models(FAMILIES)]
    assert [model.name for model in models if not (ZOO / model.name / "config.pbtxt").is_file()] == []


def test_a_rendered_file_says_where_to_edit_instead(repository: Path) -> None:
    for file in ("config.pbtxt", "1/model.py"):
        assert (repository / "toy_tokenizer" / file).read_text().startswith(HEADER)


def test_an_edit_by_hand_is_told_as_a_diff(repository: Path) -> None:
    file = repository / CONFIG
    file.write_text(file.read_text().replace("max_batch_size: 64", "max_batch_size: 65"))
    found = difference(repository, rendered_files(TOY))
    assert "-max_batch_size: 65" in found
    assert "+max_batch_size: 64" in found


def test_a_missing_file_is_told(repository: Path) -> None:
    (repository / "toy_tokenizer" / "warmup" / "bucket_16").unlink()
    assert "missing: toy_tokenizer/warmup/bucket_16" in difference(repository, rendered_files(TOY))


def test_a_sample_that_is_no_text_can_be_told_too(repository: Path) -> None:
    (repository / "toy_tokenizer" / "warmup" / "bucket_16").write_bytes(b"\xff\x00")
    assert "bucket_16 (rendered)" in difference(repository, rendered_files(TOY))


def test_a_difference_in_line_endings_is_told_too(repository: Path) -> None:
    (repository / CONFIG).write_bytes((repository / CONFIG).read_bytes().replace(b"\n", b"\r\n"))
    assert difference(repository, rendered_files(TOY)) == f"line endings or bytes that are no text differ: {CONFIG}\n"


def test_writing_twice_changes_nothing(repository: Path) -> None:
    assert written(repository, rendered_files(TOY)) == []


def test_a_model_without_the_header_was_not_rendered(repository: Path) -> None:
    assert is_rendered(repository / "toy_tokenizer")
    file = repository / CONFIG
    file.write_text(file.read_text().removeprefix(HEADER))
    assert not is_rendered(repository / "toy_tokenizer")


def test_a_model_that_nothing_defines_any_more_is_told(repository: Path) -> None:
    assert orphans(repository, []) == ["toy_tokenizer"]


def test_a_tokenizer_of_another_kind_says_how_it_pads() -> None:
    member = tokenizer("other_tokenizer", "other", buckets=(16, 512), pad_id=1)
    text = rendered_files([Family(members=(member,))])[Path("other_tokenizer/config.pbtxt")].decode()
    assert 'key: "buckets" value { string_value: "16,512" }' in text
    assert 'key: "pad_id" value { string_value: "1" }' in text


def test_each_input_of_a_warm_up_has_a_file_of_its_own() -> None:
    text, other = text_of(3), replace(text_of(5), tensor=Tensor("other", Dtype.STRING, (1,)))
    member = replace(tokenizer("pair_tokenizer", "pair"), warmups=(Warmup("both", (text, other)),), variants={})
    files = rendered_files([Family(members=(member,))])
    assert files[Path("pair_tokenizer/warmup/both_text")] == text.content
    assert files[Path("pair_tokenizer/warmup/both_other")] == other.content
    assert b'input_data_file: "both_other"' in files[Path("pair_tokenizer/config.pbtxt")]


def test_two_definitions_of_one_name_must_be_alike() -> None:
    vector = (Tensor("sentence_embedding", Dtype.FP32, (384,)),)
    one = encoder("twin", "An encoder.", outputs=vector)
    other = replace(one, niceness=5)
    with pytest.raises(BadDefinition, match="twin is defined twice"):
        generated_members([Family(members=(one, other))])
