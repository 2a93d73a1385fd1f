"""Models whose warm-up fails, in a real Triton: it survives them, and its other models serve.

Triton 2.51 mostly ends with signal 11 when a warm-up is answered by an error, or when it raises one.
"""

from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from zooserve.triton.warmups import WarmupLog
from zooserve_ensembles.graphs.writing import Graph, floats
from zooserve_ensembles.scaffolding.models import model_files
from zooserve_ensembles.scaffolding.placing import place

pytestmark = pytest.mark.e2e


def looking_up_row_99() -> bytes:
    """A graph that loads and fits its configuration, and fails whenever it runs."""
    graph = Graph("broken")
    table, row = graph.constant("table", np.zeros((10, 2))), graph.constant("row", [99], np.int64)
    found = graph.node("Gather", [table, row], "found")
    part = graph.node("MatMul", ["x", graph.constant("weight", np.zeros((4, 2)))], "part")
    graph.node("Add", [part, found], "y")
    return graph.serialized(floats({"x": ["batch", 4]}), floats({"y": ["batch", 2]}))


def failing(code: str, fault: str) -> str:
    """The Python of a new model, whose computation raises."""
    begins = "        texts = decoded("
    assert code.count(begins) == 1
    return code.replace(begins, f"        raise {fault}('no')\n{begins}")


@pytest.fixture(scope="module")
def nursery(start_zoo: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("nursery")
    for name, backend in (("well", "onnxruntime"), ("graph", "onnxruntime"), ("code", "python"), ("input", "python")):
        place(root, model_files(name, backend))
    (root / "graph/1/model.onnx").write_bytes(looking_up_row_99())
    for name, fault in (("code", "RuntimeError"), ("input", "ValueError")):
        code = root / name / "1" / "model.py"
        code.write_text(failing(code.read_text(), fault))
    return start_zoo("nursery", root)


TEXT = {"text": np.array([["a"]], object)}
X = {"x": np.zeros((1, 4), np.float32)}


@pytest.mark.parametrize(
    ("model", "inputs", "output", "said"),
    [
        ("graph", X, "y", r"graph version 1: (?s:.)*indices element out of data bounds"),
        ("code", TEXT, "characters", r"code version 1: no"),
        ("input", TEXT, "characters", r"input version 1: no"),
    ],
)
def test_a_model_that_cannot_be_warmed_says_why_to_whoever_asks_it_and_the_others_serve(
    nursery: Any, model: str, inputs: Any, output: str, said: str
) -> None:
    with pytest.raises(InferenceServerException, match=said):
        nursery.infer(model, inputs, [output])
    assert nursery.infer("well", X, ["y"])["y"].shape == (1, 2)


def test_every_warm_up_that_failed_is_found_in_the_servers_log_and_no_other(nursery: Any) -> None:
    found = WarmupLog(nursery.server._child.log_file).failures()
    assert set(found) == {("graph", "1"), ("code", "1"), ("input", "1")}
