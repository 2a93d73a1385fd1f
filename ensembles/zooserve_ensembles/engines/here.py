"""This machine, as a plan's manifest sees it: its GPUs, its TensorRT, its container, its driver."""

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path

from zooserve_ensembles.engines.cuda import Cuda
from zooserve_ensembles.engines.identity import NO_CONTAINER, Machine

__all__ = ["CONTAINER_VARIABLES", "this_machine"]

CONTAINER_VARIABLES = ("ZOOSERVE_CONTAINER_TAG", "NVIDIA_TRITON_SERVER_VERSION")
"""Where the container's release is read; the second is set in NVIDIA's images of Triton."""
_LIBRARIES = ("libnvinfer.so.10", "libnvinfer.so.11", "libnvinfer.so")
_PARTS = ("Major", "Minor", "Patch", "Build")
_DRIVER = Path("/proc/driver/nvidia/version")


def this_machine(environ: Mapping[str, str], tensorrt: str | None = None) -> Machine:
    """The machine; `tensorrt` where a Python module of it says its version. Raises EngineRefused without a GPU."""
    container = next((environ[name] for name in CONTAINER_VARIABLES if environ.get(name)), NO_CONTAINER)
    return Machine(Cuda().gpus(), tensorrt or _library_version(environ), container, _driver())


def _library_version(environ: Mapping[str, str]) -> str:
    """That of the library which Triton's backend loads; empty where there is none."""
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
            return ".".join(str(getattr(library, f"getInferLib{part}Version")()) for part in _PARTS)
        except (OSError, AttributeError):  # not there, or too old to tell its build
            continue
    return environ.get("TRT_VERSION", "").partition("+")[0]


def _driver() -> str:
    try:
        found = re.search(r"\b\d+\.\d+(\.\d+)?\b", _DRIVER.read_text(encoding="utf-8"))
    except OSError:
        return "unknown"
    return found[0] if found else "unknown"
