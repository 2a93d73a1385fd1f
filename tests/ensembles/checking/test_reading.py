"""What is read, what cannot be read, and what Triton takes for a model."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from zooserve_ensembles.checking import check_repository


def test_a_typo_is_told_with_line_and_column(shelf: Any) -> None:
    shelf.edit("encoder", "data_type: TYPE_FP32", "data_type: TYPE_FP23  # here")
    assert shelf.told() == shelf.here("config-syntax")
    assert "line 19, column 16:" in shelf.messages()
    assert "Did you mean TYPE_FP32?" in shelf.messages()


def test_a_bracket_that_is_not_closed(shelf: Any) -> None:
    path = shelf.root / "encoder" / "config.pbtxt"
    path.write_text(path.read_text().rstrip().removesuffix("]"))
    assert [line[2] for line in shelf.told()] == ["config-syntax"]


def test_a_template_is_told_as_one(shelf: Any) -> None:
    shelf.edit("encoder", "max_batch_size: 8", "max_batch_size: ${max_batch}  # here")
    assert shelf.told() == shelf.here("config-template")


def test_two_schedulers_are_told_at_the_second(shelf: Any) -> None:
    shelf.append("encoder", "dynamic_batching { }\nsequence_batching { }  # here\n")
    assert shelf.told() == shelf.here("two-schedulers")


def test_text_that_is_not_utf8(shelf: Any) -> None:
    path = shelf.root / "encoder" / "config.pbtxt"
    path.write_bytes(path.read_bytes().replace(b'"vector"', b'"v\xe9ctor"'))
    assert shelf.told() == [("encoder/config.pbtxt", 18, "config-unreadable")]


def test_a_byte_order_mark(shelf: Any) -> None:
    path = shelf.root / "encoder" / "config.pbtxt"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert shelf.told() == [("encoder/config.pbtxt", 1, "config-syntax")]
    assert "byte order mark" in shelf.messages()


def test_fields_nested_without_end(shelf: Any) -> None:
    shelf.append("encoder", "parameters {" * 5000)
    assert [rule for _, _, rule in shelf.told()] == ["config-syntax"]


def test_a_comment_may_be_in_any_encoding(shelf: Any) -> None:
    path = shelf.root / "encoder" / "config.pbtxt"
    path.write_bytes(path.read_bytes() + b"# caf\xe9\n")
    assert shelf.told() == []


def test_a_configuration_that_is_a_folder(shelf: Any) -> None:
    (shelf.root / "odd" / "config.pbtxt").mkdir(parents=True)
    assert ("odd/config.pbtxt", 1, "config-unreadable") in shelf.told()


def test_an_empty_configuration_is_a_warning(shelf: Any) -> None:
    shelf.add("hollow", "")
    assert shelf.told() == [("hollow/config.pbtxt", 1, "config-empty")]
    assert shelf.check().passes()


@pytest.mark.parametrize("model", ["encoder", "pipeline"])
def test_a_model_without_a_version_folder(shelf: Any, model: str) -> None:
    shutil.rmtree(shelf.root / model / "1")
    assert shelf.told() == [(f"{model}/config.pbtxt", 1, "no-version-folder")]


def test_a_version_folder_of_any_number_will_do(shelf: Any) -> None:
    (shelf.root / "pipeline" / "1").rename(shelf.root / "pipeline" / "7")
    assert shelf.told() == []


@pytest.mark.parametrize("name", ["01", "v2", "1.0", "version_3"])
def test_a_version_folder_that_triton_ignores(shelf: Any, name: str) -> None:
    (shelf.root / "encoder" / name).mkdir()
    assert shelf.told() == [(f"encoder/{name}", 0, "ignored-version")]


def test_other_folders_of_a_model_are_its_own_affair(shelf: Any) -> None:
    for name in ("tests", "tokenizer", "configs", "warmup", "__pycache__"):
        (shelf.root / "encoder" / name).mkdir()
    (shelf.root / "encoder" / "README.md").write_text("text")
    assert shelf.told() == []


def test_a_stray_folder_is_a_model_that_never_gets_ready(shelf: Any) -> None:
    (shelf.root / "_shared").mkdir()
    (shelf.root / "_shared" / "labels.txt").write_text("yes\n")
    assert shelf.told() == [("_shared", 0, "stray-folder")]
    assert not shelf.check().passes()


def test_a_hidden_folder_is_only_warned_of(shelf: Any) -> None:
    (shelf.root / ".cache").mkdir()
    assert shelf.told() == [(".cache", 0, "stray-folder")]
    assert shelf.check().passes()


def test_files_beside_the_models_are_ignored(shelf: Any) -> None:
    (shelf.root / "README.md").write_text("text")
    assert shelf.told() == []


def test_a_link_that_leads_nowhere(shelf: Any) -> None:
    (shelf.root / "encoder" / "2").symlink_to("/nowhere/at/all")
    assert shelf.told() == [("encoder/2", 0, "dangling-link")]


def test_a_model_that_is_a_link_to_a_folder_is_read(shelf: Any, tmp_path: Path) -> None:
    (shelf.root / "encoder").rename(tmp_path / "elsewhere")
    (shelf.root / "encoder").symlink_to(tmp_path / "elsewhere")
    assert shelf.told() == []


def test_a_name_that_is_not_the_folders(shelf: Any) -> None:
    shelf.edit("encoder", 'name: "encoder"', '# first\nname: "other"  # here')
    assert shelf.told() == shelf.here("name-mismatch")


def test_a_name_may_be_left_out(shelf: Any) -> None:
    shelf.edit("encoder", 'name: "encoder"\n', "")
    assert shelf.told() == []


def test_a_model_without_configuration_is_completed_by_triton(shelf: Any) -> None:
    shelf.add("bare", None)
    assert shelf.told() == []
    assert shelf.told(notes=True) == [("bare", 0, "no-config")]


@pytest.mark.parametrize("root", ["missing", "models/encoder", "models/encoder/1", "."])
def test_a_folder_that_is_no_repository(shelf: Any, tmp_path: Path, root: str) -> None:
    report = check_repository(tmp_path / root)
    assert {finding.rule for finding in report.findings} <= {"not-a-repository"}
    assert not report.passes()


def test_a_repository_of_repositories_names_them(shelf: Any, tmp_path: Path) -> None:
    assert "models" in str(check_repository(tmp_path).findings[0])


TENSORS = [
    ("duplicate-tensor", '    name: "mask"', '    name: "ids"  # here', 1),
    ("tensor-incomplete", '    name: "vector"\n    data_type: TYPE_FP32', '    name: "vector"  # here', 1),
    (
        "tensor-incomplete",
        "    data_type: TYPE_FP32\n    dims: [ 4 ]",
        "    data_type: TYPE_FP32\n    dims: [\n 0  # here\n]",
        1,
    ),
    ("reshape-mismatch", "    dims: [ 4 ]", "    dims: [ 4 ]\n    reshape { shape: [ 3 ] }  # here", 1),
    ("labels-missing", "    dims: [ 4 ]", '    dims: [ 4 ]\n    label_filename: "labels.txt"  # here', 1),
]


@pytest.mark.parametrize(("rule", "old", "new", "times"), TENSORS)
def test_a_tensor_that_triton_refuses(shelf: Any, rule: str, old: str, new: str, times: int) -> None:
    shelf.edit("encoder", old, new)
    assert [line for line in shelf.told() if line[0].startswith("encoder")] == shelf.here(rule)


def test_a_variant_with_other_tensors(shelf: Any) -> None:
    (shelf.root / "encoder" / "configs").mkdir()
    config = (shelf.root / "encoder" / "config.pbtxt").read_text()
    variant = config.replace('name: "vector"', 'name: "vector"  # here').replace("dims: [ 4 ]", "dims: [ 8 ]")
    (shelf.root / "encoder" / "configs" / "gpu.pbtxt").write_text(variant)
    assert shelf.told() == shelf.here("variant-contract")


def test_a_variant_with_other_hardware_is_fine(shelf: Any) -> None:
    (shelf.root / "encoder" / "configs").mkdir()
    config = (shelf.root / "encoder" / "config.pbtxt").read_text().replace("max_batch_size: 8", "max_batch_size: 64")
    (shelf.root / "encoder" / "configs" / "gpu.pbtxt").write_text(config + "instance_group [ { kind: KIND_GPU } ]\n")
    assert shelf.told() == []
