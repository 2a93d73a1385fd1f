"""What a probe needs of a server, whichever protocol it is reached by."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

__all__ = ["LeafEndpoint", "Response", "Shape", "TensorShape", "Wire", "wire_of"]

_PORTS = {"grpc": 8001, "http": 8000, "https": 443}


@dataclass(frozen=True)
class Wire:
    """Where a server is, and how it is spoken to."""

    scheme: Literal["grpc", "http", "https"]
    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}"


def wire_of(target: str) -> Wire:
    """Read `grpc://HOST:PORT` or `http(s)://HOST:PORT`. Raises ValueError saying what it must look like."""
    parts = urlsplit(target)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{target} is neither a folder nor grpc://HOST:PORT or http(s)://HOST:PORT.")
    if parts.path.strip("/") or parts.query:
        raise ValueError(f"{target} has a path: give host and port alone, and the model by --model.")
    return Wire(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme])  # type: ignore[arg-type]


@dataclass(frozen=True)
class TensorShape:
    """A tensor as the server declares it."""

    datatype: str
    dims: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True)
class Shape:
    """The model as the server declares it."""

    inputs: Mapping[str, TensorShape]
    outputs: Mapping[str, TensorShape]
    decoupled: bool
    max_batch_size: int


@dataclass(frozen=True)
class Response:
    """One message of an answer: its outputs as text, or its error."""

    outputs: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    """The datatype that each output really came with."""
    error: str | None = None
    status: int | None = None
    """The HTTP status that an error came with; None over gRPC, whose streams carry none."""


class LeafEndpoint(Protocol):
    """A leaf that can be asked. Closing what `responses` returns hangs up."""

    @property
    def name(self) -> str:
        """As it is shown."""

    @property
    def refuses_unknown_inputs(self) -> bool:
        """Whether an input that the model has not is an error on this protocol; over HTTP it is ignored."""

    async def shape(self) -> Shape:
        """What the server declares. Raises NotALeaf if it is no Triton, or has no such model."""

    def responses(self, inputs: Mapping[str, Any], request_id: str = "") -> AsyncGenerator[Response, None]:
        """The answer to one request. Raises BackendUnavailable if the server goes away."""

    async def metrics(self) -> str | None:
        """The page of its metrics; None where nobody said where that is."""
