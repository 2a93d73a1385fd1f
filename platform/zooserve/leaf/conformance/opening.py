"""Which wire an endpoint is asked over."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from zooserve.leaf.conformance.endpoint import LeafEndpoint, Wire

__all__ = ["opened_endpoint"]


@asynccontextmanager
async def opened_endpoint(wire: Wire, model: str, metrics: str | None = None) -> AsyncIterator[LeafEndpoint]:
    """The endpoint behind an address, closed in the end."""
    if wire.scheme == "grpc":
        from zooserve.leaf.conformance.grpc_wire import GrpcLeaf

        async with GrpcLeaf(wire, model, metrics) as leaf:
            yield leaf
    else:
        from zooserve.leaf.conformance.http_wire import HttpLeaf

        async with HttpLeaf(wire, model, metrics) as http_leaf:
            yield http_leaf
