"""The backends that models name: which file each reads, and which of them the embedded Triton has.

The embedded Triton is the one of the wheel: it brings the Python backend, and `onnxruntime` is our Python-based one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["BACKENDS", "ENSEMBLE", "FIL_FILES", "PLATFORMS", "Backend", "backend_of_file"]

ENSEMBLE = "ensemble"


@dataclass(frozen=True)
class Backend:
    """One backend. `files` are the names it looks for in a version's folder, any one of them will do."""

    name: str
    serves: str
    files: tuple[str, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)
    """A file that a file needs beside it."""
    platforms: tuple[str, ...] = ()
    """Older names of it, in the field `platform`."""
    embedded: bool = False
    completes: bool = True
    """Whether it fills in inputs and outputs that a configuration leaves out."""
    advice: str = "serve it with NVIDIA's container, or export the model to ONNX (backend onnxruntime)"
    """What to do where only the embedded Triton is there."""


_BACKENDS = (
    Backend("onnxruntime", "ONNX", ("model.onnx",), platforms=("onnxruntime_onnx",), embedded=True),
    Backend("python", "Python code", ("model.py",), embedded=True),
    Backend("tensorrt", "a TensorRT engine", ("model.plan",), platforms=("tensorrt_plan",)),
    Backend(
        "pytorch",
        "TorchScript, or a Python class with the runtime model.py",
        ("model.pt", "model.pt2", "model.py"),
        platforms=("pytorch_libtorch", "torch_aoti"),
        completes=False,
    ),
    Backend("openvino", "OpenVINO IR", ("model.xml",), {"model.xml": "model.bin"}),
    Backend(
        "tensorflow",
        "a SavedModel or a frozen graph",
        ("model.savedmodel", "model.graphdef"),
        platforms=("tensorflow_savedmodel", "tensorflow_graphdef"),
    ),
    Backend(
        "fil",
        "trees: XGBoost, LightGBM, Treelite",
        ("xgboost.model", "xgboost.json", "xgboost.ubj", "model.txt", "checkpoint.tl"),
    ),
    Backend("dali", "a DALI pipeline", ("model.dali", "dali.py"), advice="serve it with NVIDIA's container"),
    Backend(
        "vllm",
        "a language model on vLLM",
        ("model.json",),
        advice="serve it with NVIDIA's vLLM container, or as the leaf (docs/models)",
    ),
    Backend(
        "tensorrtllm",
        "a TensorRT-LLM engine",
        completes=False,
        advice="serve it with NVIDIA's TensorRT-LLM container, as the leaf",
    ),
    # Triton's own test backends: no file.
    *(Backend(name, "a test of Triton itself", completes=False) for name in ("identity", "repeat", "square")),
)

BACKENDS: Mapping[str, Backend] = {backend.name: backend for backend in _BACKENDS}
"""By the name in `backend`."""

PLATFORMS: Mapping[str, str] = {platform: backend.name for backend in _BACKENDS for platform in backend.platforms}
"""By the name in `platform`: the backend it means."""

FIL_FILES: Mapping[str, str] = {
    "xgboost": "xgboost.model",
    "xgboost_json": "xgboost.json",
    "xgboost_ubj": "xgboost.ubj",
    "lightgbm": "model.txt",
    "treelite_checkpoint": "checkpoint.tl",
}
"""The file that FIL reads, by its parameter `model_type`, which is `xgboost` where it is left out."""

# The order in which Triton tries them for a model whose configuration names no backend.
_DEDUCED = {
    "model.savedmodel": "tensorflow",
    "model.graphdef": "tensorflow",
    "model.plan": "tensorrt",
    "model.onnx": "onnxruntime",
    "model.xml": "openvino",
    "model.pt": "pytorch",
    "model.py": "python",
}


def backend_of_file(names: Sequence[str]) -> str | None:
    """The backend that Triton takes for a version's folder with these files; None where none tells."""
    return next((backend for file, backend in _DEDUCED.items() if file in names), None)
