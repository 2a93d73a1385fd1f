from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx_batches import Arrays, BadTensor, Failure, Job, Result, Run, grouped, run_group

SHAPES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=8)


class Doubler:
    """A model that doubles `x`, counts its runs and refuses negative numbers."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, wanted: Sequence[str], inputs: Arrays) -> list[np.ndarray]:
        self.rows.append(len(inputs["x"]))
        if (inputs["x"] < 0).any():
            raise BadTensor("negative")
        return [inputs["x"] * 2 if name == "doubled" else inputs["x"] for name in wanted]


def run_jobs(jobs: list[Job], run: Run, *, batched: bool = True, run_elements: int = 0) -> list[tuple[int, Result]]:
    """As the backend does: group after group."""
    return [
        pair
        for group in grouped(jobs, batched=batched)
        for pair in zip(group, run_group([jobs[index] for index in group], run, run_elements), strict=True)
    ]


def job(*rows: Sequence[float], outputs: tuple[str, ...] = ("doubled",)) -> Job:
    return Job({"x": np.array(rows, np.float32)}, outputs)


@given(SHAPES, st.integers(0, 12))
def test_every_job_gets_its_own_rows_back_whatever_shared_its_run(
    shapes: list[tuple[int, int]], run_elements: int
) -> None:
    rng = np.random.default_rng(0)
    jobs = [Job({"x": rng.random(shape, np.float32)}, ("doubled",)) for shape in shapes]
    results = dict(run_jobs(jobs, Doubler(), run_elements=run_elements))
    assert sorted(results) == list(range(len(jobs)))
    for index, one in enumerate(jobs):
        assert (results[index]["doubled"] == one.inputs["x"] * 2).all()


def test_equal_shapes_run_together_and_the_smaller_ones_first() -> None:
    model = Doubler()
    order = [index for index, _ in run_jobs([job([1, 2, 3]), job([1]), job([4, 5, 6]), job([2])], model)]
    assert order == [1, 3, 0, 2]
    assert model.rows == [2, 2]


def test_without_batches_each_job_runs_by_itself() -> None:
    model = Doubler()
    list(run_jobs([job([1]), job([2])], model, batched=False))
    assert model.rows == [1, 1]


def test_a_large_batch_runs_in_slices() -> None:
    model = Doubler()
    results = dict(run_jobs([job([1], [2], [3]), job([4], [5])], model, run_elements=2))
    assert model.rows == [2, 2, 1]
    assert results[1]["doubled"].tolist() == [[8], [10]]


def test_a_job_that_fails_does_so_alone() -> None:
    results = dict(run_jobs([job([1]), job([-1]), job([3])], Doubler()))
    assert results[1] == Failure("negative", callers_fault=True)
    assert [results[0]["doubled"].tolist(), results[2]["doubled"].tolist()] == [[[2]], [[6]]]


def test_each_job_gets_only_the_outputs_that_it_asked_for() -> None:
    results = dict(run_jobs([job([1]), job([2], outputs=("same", "doubled"))], Doubler()))
    assert set(results[0]) == {"doubled"}
    assert set(results[1]) == {"doubled", "same"}


def test_a_fault_of_the_server_is_not_called_the_caller_s() -> None:
    def broken(wanted: Sequence[str], inputs: Arrays) -> list[np.ndarray]:
        raise MemoryError("no room")

    assert dict(run_jobs([job([1])], broken)) == {0: Failure("no room")}


@pytest.mark.parametrize("outputs", [(), ("doubled",)])
def test_no_jobs_run_nothing(outputs: tuple[str, ...]) -> None:
    assert list(run_jobs([], Doubler())) == []


def test_a_row_larger_than_the_bound_still_runs() -> None:
    model = Doubler()
    list(run_jobs([job([1, 2, 3], [4, 5, 6])], model, run_elements=2))
    assert model.rows == [1, 1]
