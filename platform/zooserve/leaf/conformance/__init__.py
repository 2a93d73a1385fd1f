"""Does a running server speak the leaf's contract? One probe for each known trap, against any endpoint.

A check passes: suite (which probes, one after the other) -> a group of them (shape, text, sampling, failures, leaving,
timing) -> endpoint (what a probe needs of a server) -> grpc_wire or http_wire.
"""

from zooserve.leaf.conformance.endpoint import LeafEndpoint, Response, Shape, TensorShape, Wire, wire_of
from zooserve.leaf.conformance.opening import opened_endpoint
from zooserve.leaf.conformance.probe import Probe
from zooserve.leaf.conformance.results import Report, Result
from zooserve.leaf.conformance.suite import PROBES, check_leaf

__all__ = [
    "PROBES",
    "LeafEndpoint",
    "Probe",
    "Report",
    "Response",
    "Result",
    "Shape",
    "TensorShape",
    "Wire",
    "check_leaf",
    "opened_endpoint",
    "wire_of",
]
