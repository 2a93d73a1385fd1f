"""A new model of one backend: a small real one where the embedded Triton can run it, else its place and advice."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from zooserve.errors import ScaffoldRefused
from zooserve_ensembles.backends import BACKENDS, Backend
from zooserve_ensembles.families.transformer import TEXT
from zooserve_ensembles.folders import Files, member_folder
from zooserve_ensembles.graphs.writing import Graph, floats
from zooserve_ensembles.member import Member, Warmup, text_of, zeros
from zooserve_ensembles.pipeline import Dtype, Tensor
from zooserve_ensembles.scaffolding.parts import HEADER, card, golden, template, written_card

__all__ = ["SCAFFOLDED", "linear_graph", "model_files", "runs_here"]

TEXTS = ("a", "hello world", "Straße, 東京, 👍", "")
X, Y = Tensor("x", Dtype.FP32, (4,)), Tensor("y", Dtype.FP32, (2,))
WEIGHT = np.array([[1, 0], [0, 1], [0.5, -0.5], [0.25, 0.25]], np.float32)
BIAS = np.array([0.1, -0.1], np.float32)
ROWS = ([0, 0, 0, 0], [1, 2, 3, 4], [-1, 0.5, 0.25, 8])

_NOTES: Mapping[str, str] = {
    "tensorrt": "An engine runs only on the kind of GPU, and with the TensorRT, that it was built with.",
    "pytorch": "TorchScript names no tensors: call them `INPUT__0`, `OUTPUT__0`, or as `forward` does.",
    "openvino": "Both files have to be there, `model.xml` and `model.bin`.",
    "fil": "Its parameter `model_type` says which of the files is read; here `xgboost_json`.",
    "vllm": '`model.json` holds vLLM\'s engine arguments, such as {"model": "/models/mine", "dtype": "float16"}.',
    "tensorrtllm": "Take the configuration that NVIDIA ships with the backend for anything but a trial.",
}
_CONTRACTS: Mapping[str, str] = {
    "vllm": "The backend declares them itself, so there is nothing to add.",
    "tensorrtllm": "As it stands it declares the least that the backend takes.",
}
SCAFFOLDED = ("onnxruntime", "python", *_NOTES)
"""The backends that a model can be begun for."""


def runs_here(backend: str) -> bool:
    """Whether the embedded Triton can run it, so that there is something to serve at once."""
    return BACKENDS[backend].embedded


def model_files(name: str, backend: str) -> Files:
    """Every file of a new model. Raises ScaffoldRefused for a backend that none can be begun for."""
    if backend not in SCAFFOLDED:
        raise ScaffoldRefused(f"There is no beginning for backend {backend!r}: one of {', '.join(SCAFFOLDED)}.")
    makers: Mapping[str, Callable[[str], Files]] = {"onnxruntime": _onnx, "python": _python}
    return makers[backend](name) if backend in makers else _to_bring(name, BACKENDS[backend])


def linear_graph(name: str, x: str, y: str, weight: npt.NDArray[np.float32], bias: npt.NDArray[np.float32]) -> Graph:
    """`y` is `x` times a weight, plus a bias."""
    graph = Graph(name)
    product = graph.node("MatMul", [x, graph.constant("weight", weight)], "product")
    graph.node("Add", [product, graph.constant("bias", bias)], y)
    return graph


def _onnx(name: str) -> Files:
    graph = linear_graph(name, "x", "y", WEIGHT, BIAS)
    member = Member(
        name=name,
        summary="Four numbers to two, by a weight and a bias. Replace 1/model.onnx, and say here what yours takes.",
        backend="onnxruntime",
        inputs=(X,),
        outputs=(Y,),
        warmups=(Warmup("zeros", (zeros(X, 1),)),),
    )
    rows = [
        ({"x": {"datatype": "FP32", "data": [row]}}, {"y": [(np.array(row) @ WEIGHT + BIAS).tolist()]}) for row in ROWS
    ]
    content = graph.serialized(floats({"x": ["batch", 4]}), floats({"y": ["batch", 2]}))
    return {
        **member_folder(member, HEADER, {"model.onnx": content}),
        **golden(name, "zooserve new, in numpy", 1e-5, rows),
        **card(name, "four numbers to two", "`x` FP32 [n, 4] to `y` FP32 [n, 2]"),
    }


def _python(name: str) -> Files:
    member = Member(
        name=name,
        summary="Text to its number of characters. Edit 1/model.py, and say here what it takes and gives.",
        backend="python",
        inputs=(TEXT,),
        outputs=(Tensor("characters", Dtype.INT32, (1,)),),
        warmups=(Warmup("sentence", (text_of(8),)),),
    )
    rows = [({"text": {"datatype": "BYTES", "data": [[text]]}}, {"characters": [[len(text)]]}) for text in TEXTS]
    return {
        **member_folder(member, HEADER, {"model.py": template("characters.py.txt", name=name)}),
        **golden(name, "zooserve new, by counting", 0, rows),
        **card(name, "text to its number of characters", "`text` BYTES [n, 1] to `characters` INT32 [n, 1]"),
    }


def _to_bring(name: str, backend: Backend) -> Files:
    wanted = " or ".join(f"`{file}`" for file in backend.files) or "the engine's files"
    readme = template(
        "bring.md.txt",
        name=name,
        backend=backend.name,
        serves=backend.serves,
        wanted=wanted,
        contract=_CONTRACTS.get(backend.name, "As it stands it declares `x` FP32 [4] to `y` FP32 [2]."),
        advice=backend.advice,
        note=_NOTES[backend.name],
    )
    return {**_place_for(name, backend), **written_card(name, readme)}


def _place_for(name: str, backend: Backend) -> Files:
    if backend.name in _CONTRACTS:  # a contract of its own
        config = template(f"{backend.name}.pbtxt.txt", name=name)
        return {Path(name) / "config.pbtxt": config, Path(name) / "1" / ".gitkeep": b""}
    member = Member(
        name=name,
        summary=f"For {backend.serves}: see README.md for the file to put into 1/. Say here what it takes and gives.",
        backend=backend.name,
        inputs=(X,),
        outputs=(Y,),
        on_gpu=backend.name == "tensorrt",
        parameters={"model_type": "xgboost_json"} if backend.name == "fil" else {},
    )
    return member_folder(member, HEADER, {".gitkeep": b""})
