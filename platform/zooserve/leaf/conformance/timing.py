"""Probes of the figures: numbers as text, times of a steady clock."""

import time

from zooserve.leaf.conformance.endpoint import Response
from zooserve.leaf.conformance.probe import Probe, Subject, Violation, output_of, require
from zooserve.leaf.contract import PERF_OUTPUTS, parse_number

__all__ = ["PROBES"]

_TIMES = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
_HOUR_NS = 3600 * 10**9
_SLACK_NS = 50 * 10**6
"""Between what the engine sees of a request and what its client does."""


async def _text_scalars(subject: Subject) -> str:
    responses = await subject.streamed(
        sampling_param_max_tokens=4,
        sampling_param_return_perf_metrics=True,
        return_finish_reason=True,
        return_stop_reason=True,
        return_cumulative_logprob=True,
    )
    last = responses[-1]
    typed = sorted(f"{name} {kind}" for name, kind in last.types.items() if kind != "BYTES")
    require(not typed, f"the contract sends every output as BYTES holding text, and here came {', '.join(typed)}")
    reason = output_of(last, "stop_reason")
    require(reason == "None", f"an answer that no stop string ended has stop_reason {reason!r}, not the text None")
    for name in ("cumulative_logprob", *PERF_OUTPUTS):
        _number(last, name)
    return "numbers come as text, a missing value as the text None"


async def _perf(subject: Subject) -> str:
    responses = await subject.streamed(sampling_param_max_tokens=4, sampling_param_return_perf_metrics=True)
    missing = sorted(set(PERF_OUTPUTS) - set(responses[-1].outputs))
    require(not missing, f"the last message lacks {', '.join(missing)}")
    early = sorted({name for response in responses[:-1] for name in response.outputs if name in PERF_OUTPUTS})
    require(not early, f"a message before the last already has {', '.join(early)}")
    rate = _number(responses[-1], "acceptance_rate")
    require(0 <= rate <= 1, f"acceptance_rate is {rate}, and must lie between 0 and 1")
    return "perf figures come with the last message alone"


async def _steady_clock(subject: Subject) -> str:
    first, first_wall = await _timed(subject)
    second, second_wall = await _timed(subject)
    for times, wall in ((first, first_wall), (second, second_wall)):
        require(times == sorted(times), f"arrival, scheduled, first and last token are not in order: {times}")
        span = times[-1] - times[0]
        require(span <= wall + _SLACK_NS, f"the engine says {span} ns of an answer that took {wall} ns in all")
    require(
        second[0] >= first[-1] - _SLACK_NS, "a later request arrived before an earlier one's last token: not one clock"
    )
    require(abs(second[0] - time.time_ns()) > _HOUR_NS, "the times are of the wall clock: they jump when it is set")
    return "in order, of one steady clock: only differences mean something"


async def _timed(subject: Subject) -> tuple[list[int], int]:
    """The four times of one answer, and how long it took here."""
    started = time.monotonic_ns()
    responses = await subject.streamed(sampling_param_return_perf_metrics=True)
    wall = time.monotonic_ns() - started
    return [int(_number(responses[-1], name)) for name in _TIMES], wall


def _number(response: Response, name: str) -> float:
    written = output_of(response, name)
    try:
        value = parse_number(written)
    except ValueError:
        raise Violation(f"{name} is {written!r}, which is no number") from None
    if value is None:
        raise Violation(f"{name} is None where it was asked for")
    return value


PROBES = (
    Probe("text-scalars", 2, 'sends numbers as text, and "None" for a missing value', _text_scalars),
    Probe("perf-outputs", None, "sends perf figures with the last message alone", _perf),
    Probe("steady-clock", 5, "counts times on a steady clock, in order", _steady_clock),
)
