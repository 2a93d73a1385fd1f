"""Probes of who leaves early: by hanging up, and by a `stop` request."""

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from contextlib import aclosing

from zooserve.leaf.conformance.endpoint import Response
from zooserve.leaf.conformance.probe import NotApplicable, Probe, Subject, Violation, require
from zooserve.leaf.contract import CANCELLED, STOP_NEEDS_ID

__all__ = ["PROBES"]

_LONG = {
    "streaming": True,
    "sampling_param_max_tokens": 400,
    "sampling_param_exclude_input_from_output": True,
    "return_finish_reason": True,
}
_POLL_S = 0.05
_SETTLES_S = 2.0
_PATIENCE_S = 10.0
"""For a slot to be free, and for a stopped stream to end: the wrapper looks every 100 ms."""
_ACTIVE = re.compile(r'^nv_trt_llm_request_metrics\{[^}]*request_type="active"[^}]*\} (\S+)$', re.MULTILINE)
_CANCELLED = re.compile(r'^nv_inference_request_failure\{[^}]*reason="CANCELED"[^}]*\} (\S+)$', re.MULTILINE)


async def _cancel(subject: Subject) -> str:
    before = await _at_rest(subject)
    async with aclosing(subject.endpoint.responses({"text_input": subject.prompt, **_LONG})) as responses:
        first = await anext(responses, None)
        require(first is not None and first.error is None, "a long stream did not begin")
        # Without this a gauge that shows nothing would be taken for a slot that was freed.
        if before.active is not None and not await _until(subject, lambda now: now.is_above(before)):
            raise NotApplicable("the stream never showed in the gauge of active requests: use a longer --prompt")
    if before.active is not None:
        seen = await _until(subject, lambda now: not now.is_above(before))
        require(seen, f"the slot is still taken {_PATIENCE_S:.0f} s after the client hung up")
        return "hanging up frees the slot, as its own gauge of active requests says"
    seen = await _until(subject, lambda now: now.cancelled > before.cancelled)
    require(seen, f"no request counts as cancelled {_PATIENCE_S:.0f} s after the client hung up")
    return "hanging up is counted as a cancelled request by Triton"


class _Load:
    """What the metrics page says of requests."""

    def __init__(self, page: str) -> None:
        active, cancelled = _ACTIVE.findall(page), _CANCELLED.findall(page)
        self.active = sum(map(float, active)) if active else None
        self.cancelled = sum(map(float, cancelled))

    def is_above(self, before: "_Load") -> bool:
        """Whether more requests are active than before."""
        return self.active is not None and self.active > (before.active or 0)


async def _measured(subject: Subject) -> _Load:
    page = await subject.endpoint.metrics()
    if page is None:
        raise NotApplicable("whether a slot is free shows in the metrics only: give --metrics URL")
    return _Load(page)


async def _at_rest(subject: Subject) -> _Load:
    """The load without what the last probe left: a gauge may be a moment old. With others' requests, the least seen."""
    least = await _measured(subject)
    ends = time.monotonic() + _SETTLES_S
    while least.active and time.monotonic() < ends:
        await asyncio.sleep(_POLL_S)
        now = await _measured(subject)
        least = least if now.is_above(least) else now
    return least


async def _until(subject: Subject, holds: Callable[[_Load], bool]) -> bool:
    """Look at the metrics until it holds; False if it does not in time."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while not holds(await _measured(subject)):  # noqa: ASYNC110 - a page has no event
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        return False
    return True


async def _stop(subject: Subject) -> str:
    request_id = secrets.token_hex(16)
    begun = asyncio.Event()
    victim = asyncio.create_task(_followed(subject, request_id, begun))
    try:
        await begun.wait()
        require(not victim.done(), "a long stream ended before it could be stopped: use a longer --prompt")
        stopped = await subject.all(request_id, text_input="", stop=True)
        require(
            [each.error for each in stopped] == [CANCELLED], f"the stop request got {_told(stopped)}, not {CANCELLED!r}"
        )
        ended, _ = await asyncio.wait([victim], timeout=_PATIENCE_S)
        if not ended:
            return "the stop request is told so; the stopped stream gets no end of its own, so prefer to hang up"
        reason = victim.result()[-1].outputs.get("finish_reason", "None")
        require(reason not in ("stop", "length"), f"the request went on to its end, {reason}, in spite of the stop")
        return "the request of that id ends, whoever asks: ids must be unguessable"
    finally:
        victim.cancel()
        await asyncio.gather(victim, return_exceptions=True)


async def _followed(subject: Subject, request_id: str, begun: asyncio.Event) -> list[Response]:
    seen = []
    try:
        async with aclosing(
            subject.endpoint.responses({"text_input": subject.prompt, **_LONG}, request_id)
        ) as responses:
            async for response in responses:
                seen.append(response)
                begun.set()
    finally:
        begun.set()
    return seen


async def _stop_without_id(subject: Subject) -> str:
    responses = await subject.all(text_input="", stop=True)
    errors = [response.error for response in responses]
    if not errors or STOP_NEEDS_ID not in (errors[0] or ""):
        raise Violation(f"a stop without an id got {_told(responses)}, not {STOP_NEEDS_ID!r}")
    return "a stop without an id is refused"


def _told(responses: list[Response]) -> str:
    return ", ".join(repr(each.error) if each.error else "a plain answer" for each in responses) or "nothing"


PROBES = (
    Probe("cancel-frees-the-slot", 4, "frees the slot of who hangs up", _cancel),
    Probe("stop-by-id", 8, "ends the request whose id a `stop` has", _stop),
    Probe("stop-needs-an-id", 8, "refuses a `stop` without an id", _stop_without_id),
)
