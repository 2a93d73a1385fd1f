"""The Builder that is TensorRT, by its Python module, or by another with the same names.

The network is strongly typed: every tensor has the type that the graph gives it, and no kernel computes in fewer bits
than that, but for TF32, which is off unless asked for. The module has no types, so its objects are Any here.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from zooserve.errors import EngineRefused
from zooserve_ensembles.engines.builder import Order
from zooserve_ensembles.engines.cuda import Cuda

__all__ = ["TensorRtBuilder"]

_MODULES = ("tensorrt", "tensorrt_bindings")
"""The second is what its wheel of bindings alone brings, which uses the system's library."""


class TensorRtBuilder:
    """Builds and loads plans. Raises EngineRefused where the module is not there."""

    def __init__(self, module: str | None = None) -> None:
        self.module, self._trt = _imported([module] if module else _MODULES)
        self._log = _log_of(self._trt)

    @property
    def version(self) -> str:
        """TensorRT's version, with its build."""
        return str(self._trt.__version__)

    def build(self, order: Order) -> bytes:
        """The plan. Raises EngineRefused with TensorRT's last errors."""
        builder = self._made(lambda: self._trt.Builder(self._log), "TensorRT does not start")
        flag = self._trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
        network = builder.create_network(1 << int(flag))
        self._parse(network, order)
        config = builder.create_builder_config()
        config.set_memory_pool_limit(self._trt.MemoryPoolType.WORKSPACE, order.workspace_bytes)
        set_tf32 = config.set_flag if order.tf32 else config.clear_flag
        set_tf32(self._trt.BuilderFlag.TF32)
        for place, profile in enumerate(order.profiles):
            made = builder.create_optimization_profile()
            for name in order.inputs:
                made.set_shape(name, *profile.shapes)
            if config.add_optimization_profile(made) != place:
                raise EngineRefused(self._said(f"TensorRT refuses the profile of {profile.length} tokens"))
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise EngineRefused(self._said("TensorRT built no plan"))
        return bytes(plan)

    @contextmanager
    def loaded(self, plan: bytes) -> Iterator["_Loaded"]:
        """The plan on the first GPU."""
        cuda = Cuda()
        with cuda.current(), cuda.stream() as stream:
            runtime = self._made(lambda: self._trt.Runtime(self._log), "TensorRT's runtime does not start")
            engine = runtime.deserialize_cuda_engine(plan)
            if engine is None:
                raise EngineRefused(self._said("TensorRT does not load the plan on this GPU"))
            yield _Loaded(self._trt, engine, cuda, stream, self._log)

    def _parse(self, network: Any, order: Order) -> None:
        parser = self._trt.OnnxParser(network, self._log)
        if not parser.parse(order.graph):
            faults = [parser.get_error(place) for place in range(parser.num_errors)]
            said = "; ".join(f"{fault.node_operator() or 'the graph'}: {fault.desc()}" for fault in faults)
            raise EngineRefused(f"TensorRT does not read the graph: {said or self._log.last()}")
        # Triton's backend refuses an engine with an output that the configuration does not name.
        for tensor in [network.get_output(place) for place in range(network.num_outputs)]:
            if tensor.name not in order.outputs:
                network.unmark_output(tensor)

    def _made(self, make: Any, failed: str) -> Any:
        """What TensorRT makes; it answers None or raises where it cannot."""
        try:
            made = make()
        except (RuntimeError, TypeError) as exc:
            raise EngineRefused(self._said(f"{failed}: {exc}")) from exc
        if made is None:
            raise EngineRefused(self._said(failed))
        return made

    def _said(self, failed: str) -> str:
        return f"{failed}. It said: {self._log.last() or 'nothing'}"


class _Loaded:
    """A plan on the GPU. One batch at a time: inputs up, run, outputs down."""

    def __init__(self, trt: Any, engine: Any, cuda: Cuda, stream: int, log: Any) -> None:
        self._trt, self._engine, self._cuda, self._stream, self._log = trt, engine, cuda, stream, log
        self._context = engine.create_execution_context()
        if self._context is None:
            raise EngineRefused(f"TensorRT gives no execution context. It said: {log.last() or 'nothing'}")
        names = [engine.get_tensor_name(place) for place in range(engine.num_io_tensors)]
        self._outputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT]

    def run(self, profile: int, inputs: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
        """One batch through that profile; the outputs by name."""
        context, stream = self._context, self._stream
        self._held(context.set_optimization_profile_async(profile, stream), f"profile {profile}")
        self._cuda.wait(stream)
        for name, array in inputs.items():
            self._held(context.set_input_shape(name, tuple(array.shape)), f"{name} {list(array.shape)}")
        with ExitStack() as held:
            for name, array in inputs.items():
                address = held.enter_context(self._cuda.memory(array.nbytes))
                self._cuda.upload(address, np.ascontiguousarray(array))
                self._held(context.set_tensor_address(name, address), name)
            places = {name: held.enter_context(self._cuda.memory(self._bytes(name))) for name in self._outputs}
            for name, address in places.items():
                self._held(context.set_tensor_address(name, address), name)
            self._held(context.execute_async_v3(stream), "the batch")
            self._cuda.wait(stream)
            return {name: self._cuda.download(address, *self._form(name)) for name, address in places.items()}

    def _form(self, name: str) -> tuple[tuple[int, ...], npt.DTypeLike]:
        dtype = self._trt.nptype(self._engine.get_tensor_dtype(name))
        return tuple(self._context.get_tensor_shape(name)), dtype

    def _bytes(self, name: str) -> int:
        shape, dtype = self._form(name)
        return int(np.prod(shape)) * np.dtype(dtype).itemsize

    def _held(self, accepted: Any, what: str) -> None:
        if accepted is False:
            raise EngineRefused(f"TensorRT refuses {what}. It said: {self._log.last() or 'nothing'}")


def _imported(modules: Sequence[str]) -> tuple[str, Any]:
    """The first of them that is here, and its name. Raises EngineRefused."""
    reasons = []
    for module in modules:
        try:
            return module, importlib.import_module(module)
        except ImportError as exc:
            reasons.append(str(exc))
    raise EngineRefused(
        f"TensorRT's Python module is not here ({'; '.join(reasons)}). NVIDIA's Triton image has the library alone: "
        "install its bindings beside it, of the library's version, as docs/engines.md shows."
    )


def _log_of(trt: Any) -> Any:
    """A logger that keeps TensorRT's errors, so that what it refuses can be told in its words."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self._errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.Severity.ERROR:
                self._errors.append(message)

        def last(self) -> str:
            return " | ".join(self._errors[-3:])

    return Log()
