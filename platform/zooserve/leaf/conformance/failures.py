"""Probes of failures: each looks like the server's own, whoever made it, so validation has to come before it.

To Triton each is an internal error, which its map makes a 500. Its generate_stream says 400 of all of them (2.51,
measured), and a gRPC stream has no codes at all: what can be asked of any of them is that nothing tells them apart.
"""

from collections.abc import Mapping
from typing import Any

from zooserve.leaf.conformance.probe import Probe, Subject, require
from zooserve.leaf.contract import ERROR_PREFIX

__all__ = ["PROBES"]

_WRONG: Mapping[str, Mapping[str, Any]] = {
    "a temperature below 0": {"sampling_param_temperature": -1.0},
    "a top_p above 1": {"sampling_param_top_p": 2.0},
}


async def _failures(subject: Subject) -> str:
    statuses = set()
    for what, inputs in _WRONG.items():
        responses = await subject.all(streaming=True, sampling_param_max_tokens=2, **inputs)
        errors = [response for response in responses if response.error is not None]
        require(bool(errors), f"{what} is answered as if it were right")
        require(len(responses) == 1, f"{what} got {len(responses)} messages: it must be refused before any text")
        error = errors[0].error or ""
        require(error.startswith(ERROR_PREFIX), f"{what} is refused as {error!r}, without {ERROR_PREFIX!r} in front")
        statuses.add(errors[0].status)
    require(len(statuses) == 1, f"failures are told apart by HTTP status, {sorted(map(str, statuses))}")
    await subject.answer(sampling_param_max_tokens=2)
    return "a caller's mistake looks like the server's own, and hurts nobody after it"


PROBES = (Probe("every-failure-alike", 7, "makes every failure its own, a 500 to Triton, prefixed", _failures),)
