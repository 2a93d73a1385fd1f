"""TensorRT for RTX in TensorRT's place, where its wheels are on the path: it builds without a GPU."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from zooserve.errors import EngineRefused
from zooserve_ensembles.engines.builder import Order
from zooserve_ensembles.engines.encoder import read_encoder
from zooserve_ensembles.engines.profiles import profiles_of
from zooserve_ensembles.engines.tensorrt_builder import TensorRtBuilder

MODULE = "tensorrt_rtx_bindings"
pytest.importorskip(MODULE, reason="no registry that CI may use has TensorRT's wheels")


@pytest.fixture
def tensorrt() -> TensorRtBuilder:
    return TensorRtBuilder(MODULE)


@pytest.fixture
def order(repository: Path) -> Order:
    encoder = read_encoder(repository, "small_encoder")
    profiles = profiles_of(encoder.buckets, encoder.max_batch_size)
    return Order(
        encoder.graph().content, encoder.inputs, encoder.outputs, profiles, tf32=False, workspace_bytes=1 << 28
    )


def test_a_plan_is_built_of_the_graph_written_out(tensorrt: TensorRtBuilder, order: Order) -> None:
    assert tensorrt.version.count(".") == 3
    plan = tensorrt.build(order)
    assert len(plan) > 1000
    assert b"token_embeddings" not in plan


def test_a_graph_that_cannot_be_read_is_refused_in_tensorrt_s_words(tensorrt: TensorRtBuilder, order: Order) -> None:
    with pytest.raises(EngineRefused, match=r"TensorRT does not read the graph: .*Failed to parse the ONNX model"):
        tensorrt.build(replace(order, graph=b"nothing"))


def test_an_operator_that_tensorrt_has_not_is_refused_by_name(
    tensorrt: TensorRtBuilder, order: Order, model_bytes: Callable[..., bytes]
) -> None:
    with pytest.raises(EngineRefused, match="NoSuchOperator"):
        tensorrt.build(replace(order, graph=model_bytes(operation="NoSuchOperator")))


def test_without_a_gpu_a_plan_is_not_loaded(tensorrt: TensorRtBuilder, order: Order) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("there is a GPU here")
    with pytest.raises(EngineRefused, match="There is no GPU here"), tensorrt.loaded(tensorrt.build(order)):
        pass
