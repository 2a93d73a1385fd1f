from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from zooserve_ensembles.engines.gate import GoldenText, judged

BUCKETS = (4, 8)
TABLE = np.random.default_rng(5).standard_normal((20, 6)).astype(np.float32)


def pooled(inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    summed = (TABLE[inputs["input_ids"]] * inputs["attention_mask"][:, :, None]).sum(1)
    return np.asarray(summed / np.linalg.norm(summed, axis=1, keepdims=True), np.float32)


def text(*ids: int) -> GoldenText:
    row = np.array([ids])
    return GoldenText(ids, pooled({"input_ids": row, "attention_mask": np.ones_like(row)})[0])


GOLDEN = [text(1, 2), text(3, 4, 5), text(6, 7, 8, 9, 10, 11), text(12)]


def test_an_exact_plan_passes_in_every_bucket() -> None:
    shapes = []

    def run(inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        shapes.append(inputs["input_ids"].shape)
        return pooled(inputs)

    report = judged(GOLDEN, run, BUCKETS, 4)
    assert report.passed
    assert (report.texts, list(report.buckets)) == (4, ["4", "8"])
    assert min(report.least_cosine, report.least_together) > 0.999999
    assert {(1, 4), (1, 8), (4, 4), (4, 8)} == set(shapes)


def test_a_plan_that_reads_padding_fails_by_bucket() -> None:
    def run(inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        return pooled({"input_ids": inputs["input_ids"], "attention_mask": np.ones_like(inputs["attention_mask"])})

    report = judged(GOLDEN, run, BUCKETS, 4)
    assert not report.passed
    assert any("in a full batch of 8 tokens" in fault for fault in report.faults)


def test_a_plan_whose_batch_mates_matter_fails() -> None:
    def run(inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        vectors = pooled(inputs)
        return vectors + (0.05 * vectors.mean(0) if len(vectors) > 1 else 0)

    report = judged(GOLDEN, run, BUCKETS, 4)
    assert report.least_cosine > 0.999999
    assert len(report.faults) == 2


def test_a_plan_of_another_model_fails_against_the_reference() -> None:
    other = [GoldenText(one.ids, two.vector) for one, two in zip(GOLDEN, reversed(GOLDEN), strict=True)]
    report = judged(other, pooled, BUCKETS, 4)
    assert "to the reference" in report.faults[0]
    assert len(report.faults) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_numbers_that_are_none_never_pass(bad: float) -> None:
    report = judged(GOLDEN, lambda inputs: np.full((len(inputs["input_ids"]), 6), bad, np.float32), BUCKETS, 4)
    assert report.least_cosine == -1
    assert len(report.faults) == 3


def test_a_bucket_that_no_text_fits_is_no_fault() -> None:
    report = judged([text(1, 2, 3, 4, 5)], pooled, BUCKETS, 4)
    assert report.passed
    assert report.buckets["4"] == 1.0
