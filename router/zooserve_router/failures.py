"""Which stage of an ensemble failed, from what there is: Triton's text, the configuration, the request's spans.

Triton 2.51 names no step in most of its texts. In this order each source is asked, and the first that knows decides:
the stage's own prefix ("embed_encoder version 1: ..."), a model that Triton names, the configuration where it leaves
one answer (the one queue that has a bound), the trace. Where none knows, the failure says why it is not known.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from zooserve_observability.spans import Span
from zooserve_router.stages import Ensemble, Stage, Step

__all__ = [
    "Failure",
    "Reason",
    "Suspicion",
    "failure_of",
    "is_handed_on_wrongly",
    "missing_output",
    "suspicion_by_trace",
]

Reason = Literal["queue_full", "queue_timeout", "stub_dead", "exception", "bad_tensor", "unavailable", "error"]

_ENSEMBLE = re.compile(r"in ensemble '[^']*', ")
_REQUEST_ID = re.compile(r"\[request id: .*?\] ", re.DOTALL)
_OWN = re.compile(r"([\w.-]+) version (\d+): (.*)", re.DOTALL)
# A stage that calls a model from its code, such as embed_long, names itself and then that one.
_CALLED = re.compile(r"([\w.-]+) version \d+: ([\w.-]+) version (\d+): (.*)", re.DOTALL)
_STUB = re.compile(r"Stub process '([\w.-]+)'")
_UNCAUGHT = re.compile(r"Failed to process the request\(s\) for model '([\w.-]+)', message: (.*)", re.DOTALL)
_READER = re.compile(
    r"(?:unexpected shape for input '(?P<shape>[\w.-]+)'|expected \d+ inputs but got \d+ inputs"
    r"|inference input '(?P<type>[\w.-]+)' data-type is '\w+', but) (?:for )?model '(?P<model>[\w.-]+)'"
)
_LACKING = re.compile(r"missing required input\(s\) \['([\w.-]+)'")
_UNAVAILABLE = ("unknown model", "has no available versions", "is not ready", "is unloading")
_MODEL_NAME = "triton.model_name"
# A step's span ends when its request is released, a little after its answer has left.
_RELEASE_NS = 5_000_000


@dataclass(frozen=True)
class Suspicion:
    """The stages that a source leaves, and what it says when that is not one."""

    stages: tuple[Stage, ...]
    doubt: str = ""


@dataclass(frozen=True)
class Failure:
    """A failed request to the zoo: why it failed, and in which stage if that is known."""

    ensemble: str
    reason: Reason
    text: str
    """What was said, without the names of ensemble and stage before it."""
    stage: Stage | None = None
    doubt: str = "its text names none"
    """Why the stage is not known, where it is not."""

    def by(self, suspicion: Suspicion) -> "Failure":
        """The same with what another source says."""
        if len(suspicion.stages) == 1:
            return Failure(self.ensemble, self.reason, self.text, suspicion.stages[0])
        return Failure(self.ensemble, self.reason, self.text, doubt=suspicion.doubt)

    @property
    def place(self) -> str:
        """`embed_encoder version 1`, or why that is not known."""
        return str(self.stage) if self.stage else f"a stage that is not known ({self.doubt})"


def failure_of(ensemble: Ensemble, text: str, models: Collection[str] = ()) -> Failure:
    """What Triton's text and the configuration say.

    `models` are those that a stage may call: another name in its text may come from whatever it was sent.
    """
    inside = _ENSEMBLE.match(text)
    said = _without_id(text[inside.end() :] if inside else text)
    called = _CALLED.match(said)
    if called and ensemble.step_of(called[1]) and called[2] in models:
        of_called = failure_of(Ensemble.single(called[2]), called[4])
        return Failure(ensemble.name, of_called.reason, of_called.text, Stage(called[2], called[3]))
    if "xceeds maximum queue size" in said:
        return Failure(ensemble.name, "queue_full", said).by(_bounded(ensemble))
    if "timeout expired" in said:
        return Failure(ensemble.name, "queue_timeout", said).by(_only(ensemble))
    if own := _OWN.match(said):
        return Failure(ensemble.name, "error", own[3]).by(_known(ensemble, own[1], own[2]))
    if stub := _STUB.match(said):
        return Failure(ensemble.name, "stub_dead", said).by(_instance(ensemble, stub[1]))
    if uncaught := _UNCAUGHT.match(said):
        return Failure(ensemble.name, "exception", uncaught[2].strip()).by(_instance(ensemble, uncaught[1]))
    if inside and (reader := _READER.match(said)):
        return Failure(ensemble.name, "bad_tensor", said).by(_culprit(ensemble, reader, said))
    if any(phrase in said for phrase in _UNAVAILABLE):
        return Failure(ensemble.name, "unavailable", said).by(_only(ensemble))
    return Failure(ensemble.name, "error", said).by(_only(ensemble))


def is_handed_on_wrongly(text: str) -> bool:
    """Whether a stage made what the next one cannot take: a 400 to Triton, and no fault of the caller's."""
    inside = _ENSEMBLE.match(text)
    return inside is not None and _READER.match(_without_id(text[inside.end() :])) is not None


def missing_output(ensemble: Ensemble, output: str) -> Failure:
    """An answer without an output that was asked for: Triton passes on what the last stage leaves out."""
    maker = ensemble.maker_of(output)
    stages = (maker.stage,) if maker else _only(ensemble).stages
    return Failure(ensemble.name, "bad_tensor", f"it answered without {output}").by(
        Suspicion(stages, f"no stage of it gives {output}")
    )


def suspicion_by_trace(ensemble: Ensemble, reason: Reason, spans: Sequence[Span], answered_ns: int) -> Suspicion:
    """What the spans of the failed request leave; its answer was read at `answered_ns` by this machine's clock.

    Who waited in a queue to no end has no `compute`. Who failed computing had ended when the answer came, nothing
    followed it, and nothing began after it. Two branches may both fit: which ended first proves nothing, since Triton
    stamps the end when a step is released, on a busy machine long after its answer.
    """
    computed = {span.parent_id for span in spans if span.name == "compute"}
    begun = {step.stage: span for step, span in _begun(ensemble, spans)}
    ended = {stage: span for stage, span in begun.items() if span.end_ns <= answered_ns + _RELEASE_NS}
    if reason in ("queue_full", "queue_timeout"):
        left = [stage for stage, span in ended.items() if span.span_id not in computed]
    else:
        last_start_ns = max((span.start_ns for span in begun.values()), default=0)
        followed = {step.stage for step in ensemble.steps if _has_begun(ensemble.followers_of(step), begun)}
        left = [
            stage
            for stage, span in ended.items()
            if span.span_id in computed and stage not in followed and span.end_ns >= last_start_ns
        ]
    if not left:
        return Suspicion((), "its trace shows no stage of it at fault")
    return Suspicion(tuple(left), f"its trace fits {' and '.join(map(str, left))}")


def _without_id(text: str) -> str:
    found = _REQUEST_ID.match(text)
    return text[found.end() :] if found else text


def _begun(ensemble: Ensemble, spans: Iterable[Span]) -> list[tuple[Step, Span]]:
    found = ((ensemble.step_of(span.attributes.get(_MODEL_NAME, "")), span) for span in spans)
    return [(step, span) for step, span in found if step is not None]


def _has_begun(steps: Iterable[Step], begun: Mapping[Stage, Span]) -> bool:
    return any(step.stage in begun for step in steps)


def _known(ensemble: Ensemble, model: str, version: str) -> Suspicion:
    """A stage by its own word, believed for models of this ensemble: others may stand in what a caller sent."""
    if ensemble.step_of(model) is None and model != ensemble.name:
        return Suspicion(_only(ensemble).stages, "its text names a model that is no stage of it")
    return Suspicion((Stage(model, version),))


def _instance(ensemble: Ensemble, instance: str) -> Suspicion:
    """By the name of a model's instance: `embed_encoder_0_0`, or a shorter one that an instance group chose."""
    models = [step.stage for step in ensemble.steps if instance.startswith(step.stage.model)]
    longest = max(models, key=lambda stage: len(stage.model), default=None)
    return Suspicion((longest,)) if longest else Suspicion((), f"no stage of it has an instance {instance}")


def _culprit(ensemble: Ensemble, reader: re.Match[str], said: str) -> Suspicion:
    """Triton names who could not take a tensor; at fault is who made it."""
    lacking = _LACKING.search(said)
    tensor = reader["shape"] or reader["type"] or (lacking[1] if lacking else "")
    step = ensemble.step_of(reader["model"])
    edge = step.takes.get(tensor) if step else None
    maker = ensemble.maker_of(edge) if edge else None
    at_fault = maker or step
    return Suspicion((at_fault.stage,)) if at_fault else Suspicion((), "its text names a model that is no stage of it")


def _bounded(ensemble: Ensemble) -> Suspicion:
    stages = tuple(step.stage for step in ensemble.steps if step.bounded)
    return Suspicion(stages, f"{len(stages)} of its queues have a bound")


def _only(ensemble: Ensemble) -> Suspicion:
    return Suspicion(tuple(step.stage for step in ensemble.steps), "its text names none")
