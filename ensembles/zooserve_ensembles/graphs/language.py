"""Language identification from py3langid's model: naive Bayes as a graph, the automaton that feeds it, its labels."""

import io
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["MODEL", "build", "build_automaton", "build_labels"]

MODEL = "model.npz.xz"

Arrays = Mapping[str, "np.ndarray[Any, Any]"]


def build(inputs: Mapping[str, Path]) -> bytes:
    """The graph `features` and `counts` [batch, length], `sharpness` [batch, 1] -> `probabilities`, and the likeliest.

    A padded place counts 0 and adds log(1 + 0). The graph's own softmax is what the package calls normalised: scores
    are divided by the root of the text's length, so that long texts are not always certain.
    """
    import numpy as np
    from onnx import TensorProto, helper

    from zooserve_ensembles.graphs.writing import Graph, floats, int64s

    arrays = _read(inputs[MODEL])
    labels = _labels(arrays)
    columns = arrays["classes"].tolist()
    graph = Graph("language")
    # Half precision on disk and in memory, as in the package: 28 MB instead of 57.
    table = graph.constant("table", arrays["ptc"], np.float16)
    rows = graph.node("Cast", [graph.node("Gather", [table, "features"], "rows16")], "rows", to=TensorProto.FLOAT)
    one = graph.constant("one", 1.0)
    weights = graph.node("Log", [graph.node("Add", ["counts", one], "counts_and_one")], "weights")
    middle = graph.constant("middle", [1], np.int64)
    weighted = graph.node("MatMul", [graph.node("Unsqueeze", [weights, middle], "weights_row"), rows], "weighted")
    summed = graph.node("Squeeze", [weighted, middle], "summed")
    scores = graph.node("Add", [summed, graph.constant("priors", arrays["pc"])], "scores")
    columnwise = graph.node("Softmax", [graph.node("Mul", [scores, "sharpness"], "tempered")], "columnwise", axis=-1)
    # Some languages have two columns, one for each script.
    fold = np.array([[float(column == label) for label in labels] for column in columns])
    graph.node("MatMul", [columnwise, graph.constant("fold", fold)], "probabilities")
    likeliest = graph.node("ArgMax", ["probabilities"], "likeliest", axis=-1, keepdims=1)
    graph.node("Gather", [graph.constant("labels", np.array(labels, object), object), likeliest], "language")
    last = graph.constant("last", [-1], np.int64)
    graph.node("ReduceMax", ["probabilities", last], "language_probability", keepdims=1)
    return graph.serialized(
        [
            *int64s({"features": ("batch", "length")}),
            *floats({"counts": ("batch", "length"), "sharpness": ("batch", 1)}),
        ],
        [
            *floats({"probabilities": ("batch", len(labels)), "language_probability": ("batch", 1)}),
            helper.make_tensor_value_info("language", TensorProto.STRING, ("batch", 1)),
        ],
    )


def build_automaton(inputs: Mapping[str, Path]) -> bytes:
    """The byte automaton as `.npz`: `states` [rows, 256], the `row` of each state, and the `feature` it stands for."""
    import numpy as np

    arrays = _read(inputs[MODEL])
    file = io.BytesIO()
    np.savez(
        file,
        states=arrays["nextmove"].reshape(-1, 256).astype(np.uint32),
        row=arrays["nextmove_row"].astype(np.uint32),
        feature=arrays["out_feat"].astype(np.int32),
    )
    return file.getvalue()


def build_labels(inputs: Mapping[str, Path]) -> bytes:
    """The languages' codes, a line each, in the order of `probabilities`."""
    return "".join(f"{label}\n" for label in _labels(_read(inputs[MODEL]))).encode()


def _labels(arrays: Arrays) -> list[str]:
    return list(dict.fromkeys(arrays["classes"].tolist()))


def _read(file: Path) -> Arrays:
    import numpy as np

    with lzma.open(file) as packed:
        archive = np.load(io.BytesIO(packed.read()), allow_pickle=False)
    return {name: archive[name] for name in archive.files}
