"""Requests that came in one call, joined into as few runs as their shapes allow and split again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Arrays", "BadTensor", "Failure", "Job", "Result", "Run", "grouped", "run_group"]

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Run = Callable[[Sequence[str], Arrays], Sequence[Array]]


class BadTensor(Exception):
    """The model refuses these values: the caller's fault, not the server's."""


@dataclass(frozen=True)
class Job:
    """One request: its inputs, each with the rows first, and the outputs it asks for."""

    inputs: Arrays
    outputs: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows that it brings."""
        return len(next(iter(self.inputs.values())))

    @property
    def shape(self) -> tuple[tuple[int, ...], ...]:
        """Its inputs' shapes without the rows: jobs of equal shape may share a run."""
        return tuple(array.shape[1:] for array in self.inputs.values())


@dataclass(frozen=True)
class Failure:
    """Why one job has no result."""

    reason: str
    callers_fault: bool = False


Result = dict[str, Array] | Failure


def grouped(jobs: Sequence[Job], *, batched: bool = True) -> list[list[int]]:
    """Indices of the jobs that may share a run, equal in shape; groups of small shapes first."""
    if not batched:
        return [[index] for index in range(len(jobs))]
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for index, job in enumerate(jobs):
        groups.setdefault(job.shape, []).append(index)
    return [groups[shape] for shape in sorted(groups)]


def run_group(jobs: Sequence[Job], run: Run, run_elements: int = 0) -> list[Result]:
    """The result of each job of a group, run together in slices of so many elements; a bad job fails alone."""
    try:
        return list(_run_together(jobs, run, run_elements))
    except Exception as exc:  # ONNX Runtime's errors share no base; whatever it is, it belongs to this group only
        if len(jobs) == 1:
            return [Failure(str(exc), isinstance(exc, BadTensor))]
    # One bad row (a token id outside the table, say) fails the whole run: find out whose it was.
    return [result for job in jobs for result in run_group([job], run, run_elements)]


def _run_together(jobs: Sequence[Job], run: Run, run_elements: int) -> list[dict[str, Array]]:
    wanted = tuple(dict.fromkeys(name for job in jobs for name in job.outputs))
    arrays = dict(zip(wanted, _run_sliced(wanted, _joined(jobs), run, run_elements), strict=True))
    if len(jobs) == 1:
        return [arrays]
    ends = np.cumsum([job.rows for job in jobs])
    return [
        {name: arrays[name][end - job.rows : end] for name in job.outputs} for job, end in zip(jobs, ends, strict=True)
    ]


def _joined(jobs: Sequence[Job]) -> Arrays:
    if len(jobs) == 1:
        return jobs[0].inputs
    return {name: np.concatenate([job.inputs[name] for job in jobs]) for name in jobs[0].inputs}


def _run_sliced(wanted: Sequence[str], inputs: Arrays, run: Run, run_elements: int) -> Sequence[Array]:
    first = next(iter(inputs.values()))
    rows = len(first)
    step = max(1, run_elements * rows // max(1, first.size)) if run_elements else rows
    if step >= rows:
        return run(wanted, inputs)
    parts = [
        run(wanted, {name: array[start : start + step] for name, array in inputs.items()})
        for start in range(0, rows, step)
    ]
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
