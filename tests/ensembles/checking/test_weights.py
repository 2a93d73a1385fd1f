"""Files of a version: no ONNX, half-copied, pointers, leftovers; and tokenizers of another model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from zooserve_ensembles.checking import Severity
from zooserve_ensembles.checking.onnx_file import NotOnnx, read_graph

ENCODER = """name: "encoder"
backend: "onnxruntime"
max_batch_size: 8
input [
  {
    name: "ids"
    data_type: TYPE_INT64
    dims: [ -1 ]
  },
  {
    name: "mask"
    data_type: TYPE_INT64
    dims: [ -1 ]
  }
]
output [
  {
    name: "vector"
    data_type: TYPE_FP32
    dims: [ 4 ]
  }
]
"""


def encoder(
    rows: int = 10, *, batch: int | str = "batch", inputs: tuple[str, ...] = ("ids", "mask"), quantised: bool = False
) -> onnx.ModelProto:
    """Rows of a table, looked up and summed."""
    table = np.zeros((rows, 4), np.int8 if quantised else np.float32)
    initializers = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1]), "axes")]
    nodes = [
        helper.make_node("Cast", ["ids"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Gather", ["unpacked" if quantised else "table", "whole"], ["found"]),
        helper.make_node("ReduceSum", ["found", "axes"], ["vector"], keepdims=0),
    ]
    if quantised:
        initializers.append(numpy_helper.from_array(np.array(0.1, np.float32), "scale"))
        nodes.insert(0, helper.make_node("DequantizeLinear", ["table", "scale"], ["unpacked"]))
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info(name, TensorProto.INT64, [batch, "length"]) for name in inputs],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, [batch, 4])],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def tokenizer(tokens: int, **more: Any) -> str:
    """A tokenizer's file with so many words."""
    words = {f"w{number}": number for number in range(tokens)}
    return json.dumps({"model": {"type": "WordLevel", "vocab": words}, "added_tokens": [], **more})


@pytest.fixture
def zoo(shelf: Any) -> Any:
    """The repository with a real ONNX encoder and a tokenizer's file of the same size."""
    shelf.add("encoder", ENCODER, code="")
    (shelf.root / "encoder" / "1" / "model.py").unlink()
    (shelf.root / "encoder" / "1" / "model.onnx").write_bytes(encoder().SerializeToString())
    (shelf.root / "tokenizer" / "1" / "tokenizer.json").write_text(tokenizer(10))
    return shelf


def model(shelf: Any) -> Path:
    return shelf.root / "encoder" / "1" / "model.onnx"


def test_the_sound_one_has_no_fault(zoo: Any) -> None:
    assert zoo.told() == []


BROKEN = [
    (b"this is no model", "not-onnx", "no protobuf"),
    (b"", "not-onnx", "it is empty"),
    (b"<html><body>Please log in</body></html>", "not-onnx", "looks like a web page"),
    (b"PK\x03\x04 and so on", "not-onnx", "model.pt for backend pytorch"),
    (encoder().SerializeToString()[:-40], "not-onnx", "cut off: at least 34 bytes are missing"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "weights-lfs-pointer", "git lfs pull"),
]


@pytest.mark.parametrize(("content", "rule", "says"), BROKEN)
def test_an_onnx_file_that_is_not_one(zoo: Any, content: bytes, rule: str, says: str) -> None:
    model(zoo).write_bytes(content)
    assert [(line[0], line[2]) for line in zoo.told()] == [("encoder/1/model.onnx", rule)]
    assert says in zoo.messages()
    assert not zoo.check().passes()


def test_no_prefix_of_a_model_is_taken_for_one(tmp_path: Path) -> None:
    whole = encoder().SerializeToString()
    file = tmp_path / "model.onnx"
    assert [length for length in range(len(whole) + 1) if _reads(file, whole[:length])] == [len(whole)]


def _reads(file: Path, content: bytes) -> bool:
    file.write_bytes(content)
    try:
        read_graph(file)
    except NotOnnx:
        return False
    return True


def test_weights_kept_in_another_file_must_be_there_and_whole(zoo: Any) -> None:
    onnx.save(encoder(400), model(zoo), save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    (zoo.root / "tokenizer" / "1" / "tokenizer.json").unlink()
    assert zoo.told() == []
    data = model(zoo).with_name("model.onnx_data")
    data.write_bytes(data.read_bytes()[:-1])
    assert zoo.told() == [("encoder/1/model.onnx_data", 0, "onnx-data-missing")]
    data.unlink()
    assert zoo.told() == [("encoder/1/model.onnx", 0, "onnx-data-missing")]


def test_a_version_folder_that_is_empty_is_a_warning(zoo: Any) -> None:
    model(zoo).unlink()
    assert zoo.told() == [("encoder/1", 0, "weights-absent")]
    assert zoo.check().passes()


def test_an_empty_version_beside_a_whole_one_is_half_copied(zoo: Any) -> None:
    zoo.add("encoder", None, 2, code="")
    zoo.append("encoder", "version_policy { all { } }\n")
    assert zoo.told() == [("encoder/2", 0, "version-half-copied")]
    assert not zoo.check().passes()


def test_a_version_without_the_backends_file_is_half_copied(zoo: Any) -> None:
    model(zoo).rename(model(zoo).with_name("vocab.bin"))
    assert zoo.told() == [("encoder/1", 0, "weights-misnamed")]
    assert "model.onnx, which is not in encoder/1/; it holds vocab.bin: the folder is half-copied" in zoo.messages()


def test_a_version_lacks_a_file_that_its_code_names(zoo: Any) -> None:
    zoo.add("tokenizer", None, 2, code='FILE = "tokenizer.json"\nclass TritonPythonModel: ...\n')
    zoo.edit(
        "pipeline", 'model_name: "tokenizer"\n      model_version: 1', 'model_name: "tokenizer"\n      model_version: 2'
    )
    assert zoo.told() == [("tokenizer/2", 0, "version-half-copied")]


def test_a_version_may_need_fewer_files_than_the_one_before(zoo: Any) -> None:
    zoo.add("tokenizer", None, 2)
    zoo.edit(
        "pipeline", 'model_name: "tokenizer"\n      model_version: 1', 'model_name: "tokenizer"\n      model_version: 2'
    )
    assert zoo.told() == []


@pytest.mark.parametrize("name", ["model.onnx.part", "model.onnx.tmp", ".model.onnx.aB3xYz", "model.onnx.incomplete"])
def test_the_leftover_of_a_copy(zoo: Any, name: str) -> None:
    (zoo.root / "encoder" / "1" / name).write_bytes(b"half")
    assert zoo.told() == [(f"encoder/1/{name}", 0, "weights-partial")]


def test_the_placeholder_that_tensorrt_llm_publishes_is_no_leftover(zoo: Any) -> None:
    (zoo.root / "encoder/1/.tmp").touch()
    assert zoo.told() == []


def test_a_link_to_weights_that_are_gone(zoo: Any) -> None:
    model(zoo).unlink()
    model(zoo).symlink_to("../blobs/sha256-1")
    assert zoo.told() == [("encoder/1/model.onnx", 0, "version-half-copied")]


def test_a_copy_that_was_cut_before_its_end(zoo: Any) -> None:
    model(zoo).rename(model(zoo).with_name("model.onnx.part"))
    assert zoo.told() == [("encoder/1/model.onnx.part", 0, "weights-partial")]


def test_notes_beside_the_weights_are_no_files_of_the_version(zoo: Any) -> None:
    for name in ("README.md", ".gitkeep", "LICENSE", "download.sh"):
        (zoo.root / "encoder" / "1" / name).write_text("text")
    assert zoo.told() == []


def test_code_that_does_not_compile_is_told_at_its_line(zoo: Any) -> None:
    (zoo.root / "tokenizer" / "1" / "model.py").write_text("class TritonPythonModel:\n    def execute(self, requ\n")
    assert zoo.told() == [("tokenizer/1/model.py", 2, "python-broken")]


@pytest.mark.parametrize("code", ["x = " + "-" * 200_000 + "1", "x = " + "a." * 100_000 + "b"])
def test_code_that_is_nested_too_deep_for_python(zoo: Any, code: str) -> None:
    (zoo.root / "tokenizer/1/model.py").write_text(code)
    assert ("tokenizer/1/model.py", 1, "python-broken") in zoo.told()


def test_code_without_the_class_is_a_warning(zoo: Any) -> None:
    (zoo.root / "tokenizer" / "1" / "model.py").write_text("print(1)\n")
    assert zoo.told() == [("tokenizer/1/model.py", 1, "python-broken")]
    assert zoo.check().passes()


def test_a_version_that_is_not_served_only_warns(zoo: Any) -> None:
    zoo.add("encoder", None, 3, code="")
    (zoo.root / "encoder" / "3" / "model.onnx").write_bytes(b"no model")
    zoo.append("encoder", "version_policy { specific { versions: [ 1 ] } }\n")
    assert zoo.told() == [("encoder/3/model.onnx", 0, "not-onnx")]
    assert zoo.check().passes()


TENSORS = [
    (
        "onnx-dtype",
        '    name: "vector"\n    data_type: TYPE_FP32',
        '    name: "vector"\n    data_type: TYPE_FP16  # here',
    ),
    ("onnx-shape", "    dims: [ 4 ]", "    dims: [ 5 ]  # here"),
    ("onnx-shape", "    dims: [ 4 ]", "    dims: [ -1, 4 ]  # here"),
    ("onnx-tensor", '    name: "vector"', '    name: "vektor"  # here'),
]


@pytest.mark.parametrize(("rule", "old", "new"), TENSORS)
def test_a_configuration_that_is_not_the_files(zoo: Any, rule: str, old: str, new: str) -> None:
    zoo.edit("encoder", old, new)
    assert [line for line in zoo.told() if line[0].startswith("encoder")] == zoo.here(rule)


def test_an_input_of_the_file_that_is_not_declared(zoo: Any) -> None:
    model(zoo).write_bytes(encoder(inputs=("ids", "mask", "types")).SerializeToString())
    assert zoo.told() == [("encoder/config.pbtxt", 5, "onnx-tensor")]
    assert "needs an input types" in zoo.messages()


def test_a_batch_of_fixed_size(zoo: Any) -> None:
    model(zoo).write_bytes(encoder(batch=1).SerializeToString())
    assert {line[2] for line in zoo.told()} == {"onnx-batch"}


def test_a_file_completes_what_the_configuration_leaves_out(zoo: Any) -> None:
    path = zoo.root / "encoder" / "config.pbtxt"
    path.write_text(path.read_text().partition("input [")[0])
    assert zoo.told() == []
    zoo.edit("pipeline", 'key: "vector"', 'key: "vektor"')
    assert [line[2] for line in zoo.told()] == ["unknown-tensor"]


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize(("tokens", "says"), [(11, "gives ids up to 10 (w10)"), (8, "knows 8 ids"), (9, ""), (10, "")])
def test_a_tokenizer_must_fit_the_encoders_table(zoo: Any, tokens: int, says: str, *, quantised: bool) -> None:
    model(zoo).write_bytes(encoder(quantised=quantised).SerializeToString())
    (zoo.root / "tokenizer" / "1" / "tokenizer.json").write_text(tokenizer(tokens))
    assert zoo.told() == ([("tokenizer/1/tokenizer.json", 0, "vocabulary-mismatch")] if says else [])
    assert says in zoo.messages()
    assert "10 rows" in zoo.messages() or not says


def test_added_tokens_count_too(zoo: Any) -> None:
    added = [{"id": 10, "content": "[EXTRA]"}]
    (zoo.root / "tokenizer" / "1" / "tokenizer.json").write_text(
        tokenizer(10).replace('"added_tokens": []', f'"added_tokens": {json.dumps(added)}')
    )
    assert "ids up to 10 ([EXTRA])" in zoo.messages()


def test_a_unigram_list_is_counted(zoo: Any) -> None:
    words = [[f"w{number}", -1.0] for number in range(12)]
    text = json.dumps({"model": {"type": "Unigram", "vocab": words}, "added_tokens": []})
    (zoo.root / "tokenizer" / "1" / "tokenizer.json").write_text(text)
    assert "ids up to 11 (w11)" in zoo.messages()


def test_a_frame_of_other_ids_than_the_vocabulary(zoo: Any) -> None:
    frame = {"special_tokens": {"w1": {"id": "w1", "ids": [5], "tokens": ["w1"]}}}
    (zoo.root / "tokenizer" / "1" / "tokenizer.json").write_text(tokenizer(10, post_processor=frame))
    assert zoo.told() == [("tokenizer/1/tokenizer.json", 0, "tokenizer-unreadable")]
    assert "w1 as id 5, but its vocabulary has w1 as 1" in zoo.messages()


def test_a_tokenizer_that_is_cut_off(zoo: Any) -> None:
    path = zoo.root / "tokenizer" / "1" / "tokenizer.json"
    path.write_text(path.read_text()[:50])
    assert zoo.told() == [("tokenizer/1/tokenizer.json", 0, "tokenizer-unreadable")]


def test_a_large_vocabulary_padded_to_a_round_number_is_fine(zoo: Any) -> None:
    model(zoo).write_bytes(encoder(51_200).SerializeToString())
    (zoo.root / "tokenizer" / "1" / "tokenizer.json").write_text(tokenizer(50_295))
    assert zoo.told() == []
    assert not zoo.check().count(Severity.NOTE)


@pytest.mark.parametrize(
    "content",
    [
        "[" * 200_000,
        '{"model": {"vocab": {"a": Infinity}}}',
        '{"model": {"vocab": {"a": 1}}, "post_processor": [1]}',
        '{"model": {"vocab": {"a": 1}}, "post_processor": {"special_tokens": [1]}}',
        '{"model": {"vocab": {"a": 1}}, "post_processor": {"special_tokens": {"a": {"tokens": [[1]], "ids": [1]}}}}',
    ],
    ids=lambda content: content[:70],
)
def test_a_tokenizer_of_another_shape(zoo: Any, content: str) -> None:
    (zoo.root / "tokenizer/1/tokenizer.json").write_text(content)
    assert zoo.told() == [("tokenizer/1/tokenizer.json", 0, "tokenizer-unreadable")]


def test_a_tokenizer_that_is_a_pointer_is_told_once(zoo: Any) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 1\n"
    (zoo.root / "tokenizer/1/tokenizer.json").write_text(pointer)
    assert zoo.told() == [("tokenizer/1/tokenizer.json", 1, "weights-lfs-pointer")]


def test_a_token_may_be_one_of_unicodes_line_separators(zoo: Any) -> None:
    (zoo.root / "tokenizer/1/tokenizer.json").unlink(missing_ok=True)
    tokens = [*"abcdefg", "\u2028", "\x85", "\x0b"]
    (zoo.root / "tokenizer/1/vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    assert zoo.told() == []
