"""The few calls of CUDA's driver that a plan needs, by ctypes: libcuda comes with every driver."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from zooserve.errors import EngineRefused
from zooserve_ensembles.engines.identity import Gpu

__all__ = ["Cuda"]

_LIBRARY = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76
_NAME_BYTES = 128


class Cuda:
    """The driver. Raises EngineRefused where there is none, or it refuses a call."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as exc:
            raise EngineRefused(
                f"There is no GPU here: {_LIBRARY} cannot be loaded. Run this on the GPU box, in a container that is "
                "started with its GPUs."
            ) from exc
        self._call("cuInit", 0)

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that CUDA shows, in its order."""
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return tuple(self._gpu(device) for device in range(count.value))

    @contextmanager
    def current(self) -> Iterator[None]:
        """The first GPU's context, current for this thread."""
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        try:
            self._call("cuCtxSetCurrent", context)
            yield
        finally:
            self._call("cuDevicePrimaryCtxRelease_v2", 0)

    @contextmanager
    def stream(self) -> Iterator[int]:
        """A stream of its own, by its address."""
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), 1)  # 1: does not wait for the default stream
        try:
            yield int(stream.value or 0)
        finally:
            self._call("cuStreamDestroy_v2", stream)

    @contextmanager
    def memory(self, size: int) -> Iterator[int]:
        """So many bytes on the GPU, by their address."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        try:
            yield address.value
        finally:
            self._call("cuMemFree_v2", address)

    def upload(self, address: int, array: npt.NDArray[Any]) -> None:
        """Copy a contiguous array to the GPU."""
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), array.ctypes.data_as(ctypes.c_void_p), _size(array))

    def download(self, address: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Copy an array from the GPU."""
        array = np.empty(shape, dtype)
        self._call("cuMemcpyDtoH_v2", array.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(address), _size(array))
        return array

    def wait(self, stream: int) -> None:
        """Until all work of the stream is done."""
        self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def _gpu(self, device: int) -> Gpu:
        name = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("cuDeviceGetName", name, _NAME_BYTES, device)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(major), _MAJOR, device)
        self._call("cuDeviceGetAttribute", ctypes.byref(minor), _MINOR, device)
        return Gpu(name.value.decode(), f"{major.value}.{minor.value}")

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status == 0:
            return
        what = ctypes.c_char_p()
        self._library.cuGetErrorName(status, ctypes.byref(what))
        raise EngineRefused(f"CUDA refused {name}: {(what.value or b'unknown').decode()} ({status}).")


def _size(array: npt.NDArray[Any]) -> ctypes.c_size_t:
    return ctypes.c_size_t(array.nbytes)
