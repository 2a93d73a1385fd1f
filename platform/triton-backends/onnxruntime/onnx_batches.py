"""Requests that came in one call, joined into as few runs as their shapes allow and split again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Arrays", "BadTensor", "Failure", "Job", "Result", "Run", "RunPlan", "grouped", "run_group"]

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Run = Callable[[Sequence[str], Sequence[Arrays]], Sequence[Sequence[Array]]]
"""Runs the model once for each of some slices, and returns the wanted outputs of each."""

# Lengths are trimmed to multiples of it: ONNX Runtime plans memory per shape, and few shapes recur.
_LENGTH_STEP = 8


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


@dataclass(frozen=True)
class RunPlan:
    """How a joined group is cut before it runs."""

    elements: int = 0
    """Elements of the first input in one run; 0: no bound."""
    at_once: int = 1
    """Slices that run side by side: a group is cut into as many, whatever its size."""
    mask: str = ""
    """The input, rows x length, that is 0 where a row is padding: columns of nothing else are not run."""
    per_token: frozenset[str] = frozenset()
    """The outputs that have a place for each column; the places of columns that were not run are 0."""


def grouped(jobs: Sequence[Job], *, batched: bool = True) -> list[list[int]]:
    """Indices of the jobs that may share a run, equal in shape; groups of small shapes first."""
    if not batched:
        return [[index] for index in range(len(jobs))]
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for index, job in enumerate(jobs):
        groups.setdefault(job.shape, []).append(index)
    return [groups[shape] for shape in sorted(groups)]


def run_group(jobs: Sequence[Job], run: Run, plan: RunPlan) -> list[Result]:
    """The result of each job of a group, run together as planned; a bad job fails alone."""
    try:
        return list(_run_together(jobs, run, plan))
    except Exception as exc:  # ONNX Runtime's errors share no base; whatever it is, it belongs to this group only
        if len(jobs) == 1:
            return [Failure(str(exc), isinstance(exc, BadTensor))]
    # One bad row (a token id outside the table, say) fails the whole run: find out whose it was.
    return [result for job in jobs for result in run_group([job], run, plan)]


def _run_together(jobs: Sequence[Job], run: Run, plan: RunPlan) -> list[dict[str, Array]]:
    wanted = tuple(dict.fromkeys(name for job in jobs for name in job.outputs))
    arrays = _run_trimmed(wanted, _joined(jobs), run, plan)
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


def _run_trimmed(wanted: Sequence[str], inputs: Arrays, run: Run, plan: RunPlan) -> dict[str, Array]:
    shape = inputs[plan.mask].shape if plan.mask else ()
    length = _used_columns(inputs[plan.mask]) if plan.mask else 0
    if not shape or length == shape[1]:
        return dict(zip(wanted, _run_sliced(wanted, inputs, run, plan), strict=True))
    trimmed = {name: array[:, :length] if array.shape[:2] == shape else array for name, array in inputs.items()}
    outputs = zip(wanted, _run_sliced(wanted, trimmed, run, plan), strict=True)
    return {name: _widened(array, shape[1]) if name in plan.per_token else array for name, array in outputs}


def _used_columns(mask: Array) -> int:
    """Columns up to the last that some row uses, in whole steps; all of them where no row uses any."""
    used = np.flatnonzero(mask.any(axis=0))
    if not len(used):
        return int(mask.shape[1])
    return min(mask.shape[1], -(-(int(used[-1]) + 1) // _LENGTH_STEP) * _LENGTH_STEP)


def _widened(array: Array, length: int) -> Array:
    wide = np.zeros((array.shape[0], length, *array.shape[2:]), array.dtype)
    wide[:, : array.shape[1]] = array
    return wide


def _run_sliced(wanted: Sequence[str], inputs: Arrays, run: Run, plan: RunPlan) -> Sequence[Array]:
    first = next(iter(inputs.values()))
    rows = len(first)
    count = _slices(rows, first.size, plan)
    if count <= 1:
        return run(wanted, [inputs])[0]
    ends = [rows * number // count for number in range(count + 1)]
    slices = [{name: array[start:end] for name, array in inputs.items()} for start, end in pairwise(ends)]
    return [np.concatenate(arrays) for arrays in zip(*run(wanted, slices), strict=True)]


def _slices(rows: int, elements: int, plan: RunPlan) -> int:
    """How many: within the bound, and a whole number for each that runs at once, so that none waits for another."""
    largest = max(1, plan.elements * rows // max(1, elements)) if plan.elements else max(1, rows)
    bounded = -(-rows // largest)
    return min(rows, -(-bounded // plan.at_once) * plan.at_once)
