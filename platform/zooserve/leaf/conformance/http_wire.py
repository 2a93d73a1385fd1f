"""A leaf over Triton's HTTP generate extension. A hang-up before the first token is seen only after it there."""

import json
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from zooserve.errors import BackendUnavailable, NotALeaf
from zooserve.leaf.conformance.endpoint import Response, Shape, TensorShape, Wire

__all__ = ["HttpLeaf", "metrics_page"]

_DECLARATION_TIMEOUT_S = 10.0
_META = ("model_name", "model_version", "id")


class HttpLeaf:
    """One model behind an HTTP address."""

    refuses_unknown_inputs = False

    def __init__(
        self, wire: Wire, model: str, metrics: str | None = None, http: httpx.AsyncClient | None = None
    ) -> None:
        self._wire = wire
        self._model = model
        self._metrics = metrics
        # A probe has a total budget of its own; a token may take long.
        self._http = http or httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=_DECLARATION_TIMEOUT_S),
            trust_env=False,  # as the router asks it
        )

    @property
    def name(self) -> str:
        """As it is shown."""
        return f"{self._model} at {self._wire}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def shape(self) -> Shape:
        """What the server declares. Raises NotALeaf if it is no Triton, or has no such model."""
        server = await self._declared("/v2")
        if not isinstance(server.get("extensions"), list):
            raise NotALeaf(f"{self._wire} is no Triton: GET /v2 does not name its extensions.")
        config = await self._declared(f"/v2/models/{self._model}/config")
        if "error" in config:
            raise NotALeaf(f"The Triton at {self._wire} does not serve {self._model}: {config['error']} Give --model.")
        return Shape(
            {tensor["name"]: _shape(tensor) for tensor in config.get("input", ())},
            {tensor["name"]: _shape(tensor) for tensor in config.get("output", ())},
            decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled")),
            max_batch_size=int(config.get("max_batch_size", 0)),
        )

    async def responses(self, inputs: Mapping[str, Any], request_id: str = "") -> AsyncGenerator[Response, None]:
        """The answer to one request; closing it closes the connection."""
        body = {**inputs, **({"id": request_id} if request_id else {})}
        url = f"{self._wire}/v2/models/{self._model}/generate_stream"
        try:
            async with self._http.stream("POST", url, json=body) as answer:
                if answer.headers.get("content-type", "").startswith("text/event-stream"):
                    async for line in answer.aiter_lines():
                        if line.startswith("data: "):
                            yield _response(json.loads(line.removeprefix("data: ")), answer.status_code)
                else:
                    yield Response(error=_error(await answer.aread()), status=answer.status_code)
        except httpx.HTTPError as exc:
            raise BackendUnavailable(f"{self._wire} went away: {exc!r}") from exc

    async def metrics(self) -> str | None:
        """The page of its metrics; None where nobody said where that is."""
        return await metrics_page(self._http, self._metrics)

    async def _declared(self, path: str) -> dict[str, Any]:
        try:
            answer = await self._http.get(f"{self._wire}{path}", timeout=_DECLARATION_TIMEOUT_S)
            document = answer.json()
        except httpx.HTTPError as exc:
            raise NotALeaf(f"{self._wire} cannot be reached: {exc!r}") from exc
        except ValueError as exc:
            raise NotALeaf(f"{self._wire} is no Triton: GET {path} gave no JSON.") from exc
        if not isinstance(document, dict):
            raise NotALeaf(f"{self._wire} is no Triton: GET {path} gave no JSON object.")
        return document


async def metrics_page(http: httpx.AsyncClient, url: str | None) -> str | None:
    """The metrics behind a URL, with or without its path. Raises BackendUnavailable."""
    if url is None:
        return None
    page = url if url.rstrip("/").endswith("/metrics") else f"{url.rstrip('/')}/metrics"
    try:
        answer = await http.get(page, timeout=_DECLARATION_TIMEOUT_S)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise BackendUnavailable(f"the metrics at {page} cannot be read: {exc!r}") from exc
    return answer.text


def _shape(tensor: Mapping[str, Any]) -> TensorShape:
    kind = str(tensor.get("data_type", "")).removeprefix("TYPE_")
    dims = tuple(int(size) for size in tensor.get("dims", ()))
    return TensorShape("BYTES" if kind == "STRING" else kind, dims, bool(tensor.get("optional")))


def _response(event: Mapping[str, Any], status: int) -> Response:
    if "error" in event:
        return Response(error=str(event["error"]), status=status)
    outputs = {name: value for name, value in event.items() if name not in _META}
    types = {name: "BYTES" if isinstance(value, str) else "a number" for name, value in outputs.items()}
    return Response({name: str(value) for name, value in outputs.items()}, types)


def _error(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")
