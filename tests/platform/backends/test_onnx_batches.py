from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx_batches import Arrays, BadTensor, Failure, Job, Result, Run, RunPlan, grouped, run_group

SHAPES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=8)


class Doubler:
    """A model that doubles `x`, counts its runs and refuses negative numbers."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, wanted: Sequence[str], slices: Sequence[Arrays]) -> list[list[np.ndarray]]:
        return [self._run(wanted, inputs["x"]) for inputs in slices]

    def _run(self, wanted: Sequence[str], x: np.ndarray) -> list[np.ndarray]:
        self.rows.append(len(x))
        if (x < 0).any():
            raise BadTensor("negative")
        return [x * 2 if name == "doubled" else x for name in wanted]


class Masked:
    """A model that adds `x` up where `mask` is 1, keeps it by place, and notes the lengths it was run at."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, wanted: Sequence[str], slices: Sequence[Arrays]) -> list[list[np.ndarray]]:
        return [self._run(wanted, **inputs) for inputs in slices]

    def _run(self, wanted: Sequence[str], x: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
        self.shapes.append(x.shape)
        made = {"total": (x * mask).sum(1, keepdims=True), "places": np.stack([x, x], axis=2)}
        return [made[name] for name in wanted]


WHOLE = RunPlan()
TRIMMED = RunPlan(mask="mask", per_token=frozenset({"places"}))


def masked_job(lengths: Sequence[int], columns: int, outputs: tuple[str, ...] = ("total", "places")) -> Job:
    mask = (np.arange(columns) < np.array(lengths)[:, None]).astype(np.int64)
    return Job({"x": np.arange(1, mask.size + 1, dtype=np.float32).reshape(mask.shape), "mask": mask}, outputs)


def run_jobs(jobs: list[Job], run: Run, *, batched: bool = True, plan: RunPlan = WHOLE) -> list[tuple[int, Result]]:
    """As the backend does: group after group."""
    return [
        pair
        for group in grouped(jobs, batched=batched)
        for pair in zip(group, run_group([jobs[index] for index in group], run, plan), strict=True)
    ]


def job(*rows: Sequence[float], outputs: tuple[str, ...] = ("doubled",)) -> Job:
    return Job({"x": np.array(rows, np.float32)}, outputs)


@given(SHAPES, st.integers(0, 12), st.integers(1, 3))
def test_every_job_gets_its_own_rows_back_whatever_shared_its_run(
    shapes: list[tuple[int, int]], elements: int, at_once: int
) -> None:
    rng = np.random.default_rng(0)
    jobs = [Job({"x": rng.random(shape, np.float32)}, ("doubled",)) for shape in shapes]
    results = dict(run_jobs(jobs, Doubler(), plan=RunPlan(elements, at_once)))
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
    results = dict(run_jobs([job([1], [2], [3]), job([4], [5])], model, plan=RunPlan(2)))
    assert sorted(model.rows) == [1, 2, 2]
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
    def broken(wanted: Sequence[str], slices: Sequence[Arrays]) -> list[list[np.ndarray]]:
        raise MemoryError("no room")

    assert dict(run_jobs([job([1])], broken)) == {0: Failure("no room")}


@pytest.mark.parametrize("outputs", [(), ("doubled",)])
def test_no_jobs_run_nothing(outputs: tuple[str, ...]) -> None:
    assert list(run_jobs([], Doubler())) == []


def test_a_row_larger_than_the_bound_still_runs() -> None:
    model = Doubler()
    list(run_jobs([job([1, 2, 3], [4, 5, 6])], model, plan=RunPlan(2)))
    assert model.rows == [1, 1]


@pytest.mark.parametrize(
    ("rows", "elements", "at_once", "ran"),
    [
        (1, 0, 2, [1]),
        (2, 0, 2, [1, 1]),
        (9, 0, 2, [4, 5]),
        (9, 4, 2, [2, 2, 2, 3]),
        (9, 4, 1, [3, 3, 3]),
        (3, 0, 4, [1, 1, 1]),
    ],
)
def test_a_group_is_cut_evenly_for_those_that_run_at_once(
    rows: int, elements: int, at_once: int, ran: list[int]
) -> None:
    model = Doubler()
    list(run_jobs([job(*([1] for _ in range(rows)))], model, plan=RunPlan(elements, at_once)))
    assert sorted(model.rows) == ran


def test_columns_that_are_padding_in_every_row_are_not_run() -> None:
    model = Masked()
    results = dict(run_jobs([masked_job([3], 32), masked_job([18, 9], 32)], model, plan=TRIMMED))
    assert model.shapes == [(3, 24)]
    assert results[0]["places"].shape == (1, 32, 2)
    assert (results[1]["places"][:, 24:] == 0).all()


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=3), min_size=1, max_size=5))
def test_trimming_changes_nothing_that_a_mask_covers(jobs: list[list[int]]) -> None:
    asked = [masked_job(lengths, 40) for lengths in jobs]
    whole, trimmed = dict(run_jobs(asked, Masked())), dict(run_jobs(asked, Masked(), plan=TRIMMED))
    for index, one in enumerate(asked):
        assert (whole[index]["total"] == trimmed[index]["total"]).all()
        covered = one.inputs["mask"][:, :, None]
        assert (whole[index]["places"] * covered == trimmed[index]["places"] * covered).all()


def test_an_output_that_only_happens_to_be_as_wide_is_left_as_it_is() -> None:
    results = dict(run_jobs([masked_job([1], 16, ("total",))], Masked(), plan=RunPlan(mask="mask")))
    assert results[0]["total"].shape == (1, 1)


def test_rows_without_a_single_token_keep_their_length() -> None:
    model = Masked()
    list(run_jobs([masked_job([0, 0], 16)], model, plan=TRIMMED))
    assert model.shapes == [(2, 16)]
