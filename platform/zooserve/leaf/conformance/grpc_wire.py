"""A leaf over Triton's gRPC streams, one stream a request, as the router asks it."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

import grpc
import httpx
import numpy as np
from tritonclient.grpc import InferInput, model_config_pb2
from tritonclient.grpc import aio as triton
from tritonclient.utils import InferenceServerException

from zooserve.errors import BackendUnavailable, NotALeaf
from zooserve.leaf.conformance.endpoint import Response, Shape, TensorShape, Wire
from zooserve.leaf.conformance.http_wire import metrics_page
from zooserve.leaf.contract import INPUTS

__all__ = ["GrpcLeaf"]

_NUMPY: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "BYTES": np.object_,
    "FP32": np.float32,
    "INT32": np.int32,
    "UINT64": np.uint64,
}


class GrpcLeaf:
    """One model behind a gRPC address."""

    refuses_unknown_inputs = True

    def __init__(self, wire: Wire, model: str, metrics: str | None = None) -> None:
        self._wire = wire
        self._model = model
        self._metrics = metrics
        self._client = triton.InferenceServerClient(wire.address, channel_args=[("grpc.enable_http_proxy", 0)])
        self._http = httpx.AsyncClient(trust_env=False)

    @property
    def name(self) -> str:
        """As it is shown."""
        return f"{self._model} at {self._wire}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.close()
        await self._http.aclose()

    async def shape(self) -> Shape:
        """What the server declares. Raises NotALeaf if it is no Triton, or has no such model."""
        try:
            config = (await self._client.get_model_config(self._model)).config
        except InferenceServerException as exc:
            raise NotALeaf(await self._why_not(exc)) from exc
        return Shape(
            {tensor.name: _shape(tensor) for tensor in config.input},
            {tensor.name: _shape(tensor) for tensor in config.output},
            decoupled=config.model_transaction_policy.decoupled,
            max_batch_size=config.max_batch_size,
        )

    async def responses(self, inputs: Mapping[str, Any], request_id: str = "") -> AsyncGenerator[Response, None]:
        """The answer to one request; closing it cancels the call."""
        call = self._client.stream_infer(self._one(inputs, request_id))
        try:
            async for result, error in call:
                yield Response(error=error.message()) if error is not None else _response(result)
        except grpc.aio.AioRpcError as exc:
            raise BackendUnavailable(f"{self._wire} went away: {exc.details()}") from exc
        except InferenceServerException as exc:
            yield Response(error=exc.message())
        finally:
            call.cancel()

    async def metrics(self) -> str | None:
        """The page of its metrics; None where nobody said where that is."""
        return await metrics_page(self._http, self._metrics)

    async def _one(self, inputs: Mapping[str, Any], request_id: str) -> AsyncIterator[dict[str, Any]]:
        tensors = [_tensor(name, value) for name, value in inputs.items()]
        yield {"model_name": self._model, "inputs": tensors, "request_id": request_id}

    async def _why_not(self, exc: InferenceServerException) -> str:
        try:
            index = await self._client.get_model_repository_index()
        except InferenceServerException:
            return f"{self._wire} does not speak Triton's gRPC protocol, or cannot be reached: {exc.message()}"
        names = ", ".join(sorted({model.name for model in index.models})) or "none"
        return (
            f"The Triton at {self._wire} does not serve {self._model}; it has {names}: give --model. ({exc.message()})"
        )


def _shape(tensor: Any) -> TensorShape:
    kind = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    return TensorShape(
        "BYTES" if kind == "STRING" else kind, tuple(tensor.dims), bool(getattr(tensor, "optional", False))
    )


def _tensor(name: str, value: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    datatype = INPUTS[name].datatype if name in INPUTS else "INT32"
    rows = [each.encode() if isinstance(each, str) else each for each in values]
    tensor = InferInput(name, [len(rows)], datatype)
    tensor.set_data_from_numpy(np.array(rows, dtype=_NUMPY[datatype]))
    return tensor


def _response(result: Any) -> Response:
    message = result.get_response()
    types = {output.name: output.datatype for output in message.outputs}
    return Response({name: _text(result.as_numpy(name)) for name in types}, types)


def _text(values: Any) -> str:
    if values is None or values.size == 0:
        return ""
    value = values.flat[0]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
