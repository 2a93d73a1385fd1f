"""Every probe, one after the other: a slot that one leaves taken is not to disturb another's measurement."""

import asyncio
from collections.abc import Sequence

from zooserve.errors import BackendUnavailable, NotALeaf
from zooserve.leaf.conformance import failures, leaving, sampling, shape, text, timing
from zooserve.leaf.conformance.endpoint import LeafEndpoint
from zooserve.leaf.conformance.probe import NotApplicable, Probe, Subject, Violation
from zooserve.leaf.conformance.results import Outcome, Report, Result

__all__ = ["PROBES", "check_leaf"]

PROBES: tuple[Probe, ...] = tuple(
    probe for group in (shape, text, sampling, failures, timing, leaving) for probe in group.PROBES
)


async def check_leaf(
    endpoint: LeafEndpoint, prompt: str, timeout_s: float = 60.0, probes: Sequence[Probe] = PROBES
) -> Report:
    """Ask each probe within `timeout_s`. Raises NotALeaf where the contract is not spoken at all."""
    declared = await endpoint.shape()
    missing = [name for name in ("text_input",) if name not in declared.inputs]
    missing += [name for name in ("text_output",) if name not in declared.outputs]
    if missing:
        has = ", ".join(declared.inputs) or "none"
        raise NotALeaf(
            f"{endpoint.name} does not speak the contract: it has no {', '.join(missing)}. Its inputs: {has}."
        )
    subject = Subject(endpoint, declared, prompt)
    return Report(endpoint.name, tuple([await _asked(probe, subject, timeout_s) for probe in probes]))


async def _asked(probe: Probe, subject: Subject, timeout_s: float) -> Result:
    outcome: Outcome
    try:
        async with asyncio.timeout(timeout_s):
            outcome, why = "pass", await probe.ask(subject)
    except NotApplicable as exc:
        outcome, why = "not applicable", str(exc)
    except (Violation, BackendUnavailable) as exc:
        outcome, why = "fail", str(exc)
    except TimeoutError:
        outcome, why = "fail", f"no end within {timeout_s:g} s"
    return Result(probe.name, probe.trap, outcome, why)
