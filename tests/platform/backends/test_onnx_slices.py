from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_batches import BadTensor
from onnx_session import SessionSettings
from onnx_slices import Slices


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A model that looks ids up in a table of four."""
    values = helper.make_tensor("table", TensorProto.FLOAT, [4, 1], [0.0, 10.0, 20.0, 30.0])
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["value"])],
        "table",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [None])],
        [helper.make_tensor_value_info("value", TensorProto.FLOAT, [None, 1])],
        [values],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("settings", [SessionSettings(), SessionSettings(side_by_side=2)])
def test_each_slice_gets_its_own_outputs_in_order(table: Path, settings: SessionSettings) -> None:
    slices = Slices(table, settings)
    made = slices.run(["value"], [{"ids": np.array([number])} for number in (3, 0, 2, 1)])
    assert [outputs[0].tolist() for outputs in made] == [[[30]], [[0]], [[20]], [[10]]]
    slices.close()


@pytest.mark.parametrize("count", [1, 3])
def test_values_that_the_model_refuses_are_the_callers_fault(table: Path, count: int) -> None:
    slices = Slices(table, SessionSettings(side_by_side=2))
    with pytest.raises(BadTensor, match="out of data bounds"):
        slices.run(["value"], [{"ids": np.array([4])}] * count)
    slices.close()


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    """A model that answers the texts it is given."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["text"], ["same"])],
        "echo",
        [helper.make_tensor_value_info("text", TensorProto.STRING, [None])],
        [helper.make_tensor_value_info("same", TensorProto.STRING, [None])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_texts_arrive_as_text(echo: Path) -> None:
    slices = Slices(echo, SessionSettings())
    ((same,),) = slices.run(["same"], [{"text": np.array(["é".encode(), b"b"], object)}])
    assert same.tolist() == ["é", "b"]


def test_texts_that_are_none_are_the_callers_fault(echo: Path) -> None:
    with pytest.raises(BadTensor, match="not UTF-8"):
        Slices(echo, SessionSettings()).run(["same"], [{"text": np.array([b"\xff"], object)}])


def test_a_model_of_one_thread_is_opened_once(table: Path) -> None:
    slices = Slices(table, SessionSettings(intra_op_threads=1, side_by_side=2))
    assert slices._narrow is slices.session
    slices.close()
