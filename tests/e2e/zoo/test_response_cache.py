"""Triton's response cache behind our ONNX backend: what it answers, what it never may, what Triton 2.51 makes of it.

The models add a constant to `x`: which weights answered shows in the answer.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from zooserve.triton.server import TritonServer

pytestmark = pytest.mark.e2e

SIZE_BYTES = 256 * 1024
CONFIG = """
name: "{name}" backend: "onnxruntime" max_batch_size: 8
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }} ]
output [
  {{ name: "sum" data_type: TYPE_FP32 dims: [ -1 ] }},
  {{ name: "same" data_type: TYPE_FP32 dims: [ -1 ] }}
]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
response_cache {{ enable: {cached} }}
version_policy {{ all {{}} }}
dynamic_batching {{ {batching} }}
"""
PAIRS = "preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 20000000"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models, each version folder with a constant of its own."""
    root = tmp_path_factory.mktemp("cached")
    for name, versions, batching in (
        ("adder", {1: 1.0, 2: 2.0}, ""),
        ("adder_v3", {3: 3.0}, ""),
        ("changing", {1: 1.0}, ""),
        ("pairs", {1: 1.0}, PAIRS),
        ("partial", {1: 1.0}, ""),
        ("large", {1: 1.0}, ""),
    ):
        for version, constant in versions.items():
            write_weights(root, name, version, constant)
        (root / name / "config.pbtxt").write_text(CONFIG.format(name=name, cached="true", batching=batching))
    return root


@pytest.fixture(scope="module")
def cached(start_zoo: Callable[..., Any], repository: Path) -> Any:
    """A server with a small cache over them."""
    return start_zoo("cached", repository, kind=partial(TritonServer, response_cache_bytes=SIZE_BYTES))


def write_weights(root: Path, name: str, version: int, constant: float) -> None:
    folder = root / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    shape = ["rows", "length"]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "constant"], ["sum"]), helper.make_node("Identity", ["x"], ["same"])],
        "adder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("sum", "same")],
        [numpy_helper.from_array(np.array(constant, np.float32), "constant")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx"
    )


def added(zoo: Any, model: str, value: float, length: int = 1, **options: Any) -> float:
    """What the model adds to a row of this value."""
    answer = zoo.infer(model, {"x": np.full((1, length), value, np.float32)}, ["sum"], **options)
    return float(answer["sum"][0, 0] - value)


def hits(zoo: Any, model: str) -> int:
    """Requests that the cache answered, over all versions."""
    stats = zoo.client.get_inference_statistics(model)["model_stats"]
    return sum(int(entry["inference_stats"]["cache_hit"]["count"]) for entry in stats)


def test_a_repeated_request_does_not_reach_the_model(cached: Any) -> None:
    before = cached.statistics("partial")["execution_count"]
    assert [added(cached, "partial", 7.0) for _ in range(3)] == [1.0] * 3
    assert cached.statistics("partial")["execution_count"] == before + 1
    assert hits(cached, "partial") == 2


def test_each_request_of_a_call_is_kept_whichever_group_answered_it(cached: Any) -> None:
    calls = [partial(added, cached, "pairs", 1.0, length) for length in (2, 3)]
    assert cached.at_once(calls) == [1.0, 1.0]
    assert cached.at_once(calls) == [1.0, 1.0]
    assert hits(cached, "pairs") == 2


def test_releases_never_share_an_answer(cached: Any) -> None:
    asked = [("adder", "1"), ("adder", "2"), ("adder_v3", "3")]
    for _ in range(2):
        assert [added(cached, model, 5.0, model_version=version) for model, version in asked] == [1.0, 2.0, 3.0]
    assert hits(cached, "adder") == 2
    assert hits(cached, "adder_v3") == 1


def test_answers_outlive_a_reload_of_changed_weights_so_only_a_restart_is_safe(cached: Any, repository: Path) -> None:
    assert added(cached, "changing", 5.0) == 1.0
    assert not cached.server.files_changed()
    write_weights(repository, "changing", 1, 9.0)
    cached.client.unload_model("changing")
    cached.eventually(lambda: cached.state("changing")[0] == "UNAVAILABLE")
    cached.client.load_model("changing")
    assert added(cached, "changing", 6.0) == 9.0, "the new weights answer"
    assert added(cached, "changing", 5.0) == 1.0, "Triton 2.51 kept the old answer; if this fails, drop the restart"
    assert cached.server.files_changed(), "the watch restarts instead of reloading where this holds"


def test_a_kept_answer_has_only_the_outputs_that_were_first_asked_for(cached: Any) -> None:
    x = {"x": np.full((1, 1), 11.0, np.float32)}
    cached.infer("partial", x, ["sum"])
    answer = cached.client.infer("partial", _inputs(x), outputs=[_wanted("same")])
    names = [output["name"] for output in answer.get_response()["outputs"]]
    assert names == ["sum"], (
        "so a cached model's outputs are asked for together (tests/ensembles/test_cached_members.py)"
    )


def test_the_cache_never_grows_beyond_its_size(cached: Any) -> None:
    for value in range(150):
        added(cached, "large", float(value), 1000)
    # Triton looks at its cache every two seconds.
    cached.eventually(lambda: gauges(cached)["nv_cache_num_evictions"] > 0)
    found = gauges(cached)
    assert 0.5 < found["nv_cache_util"] <= 1.0
    assert found["nv_cache_num_entries"] * 4000 <= SIZE_BYTES


def gauges(cached: Any) -> dict[str, float]:
    """What the metrics page says of the cache."""
    page = httpx.get(f"http://{cached.server.addresses.metrics}/metrics").text
    lines = (line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("nv_cache_"))
    return {name: float(value) for name, value in lines}


def _inputs(arrays: dict[str, Any]) -> list[Any]:
    import tritonclient.http as triton

    tensors = [triton.InferInput(name, array.shape, "FP32") for name, array in arrays.items()]
    for tensor, array in zip(tensors, arrays.values(), strict=True):
        tensor.set_data_from_numpy(array)
    return tensors


def _wanted(name: str) -> Any:
    import tritonclient.http as triton

    return triton.InferRequestedOutput(name)
