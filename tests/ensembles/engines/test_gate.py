from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from zooserve_ensembles.engines.gate import GateReport, GoldenText
from zooserve_ensembles.engines.gate import judged as judged_by

Arrays = Mapping[str, npt.NDArray[Any]]
BUCKETS = (4, 8)
TABLE = np.random.default_rng(5).standard_normal((20, 6)).astype(np.float32)


def pooled(inputs: Arrays) -> npt.NDArray[np.float32]:
    summed = (TABLE[inputs["input_ids"]] * inputs["attention_mask"][:, :, None]).sum(1)
    return np.asarray(summed / np.linalg.norm(summed, axis=1, keepdims=True), np.float32)


def text(*ids: int) -> GoldenText:
    row = np.array([ids])
    return GoldenText(ids, pooled({"input_ids": row, "attention_mask": np.ones_like(row)})[0])


def judged(golden: list[GoldenText], vectors: Callable[[Arrays], npt.NDArray[Any]]) -> GateReport:
    return judged_by(golden, lambda inputs: {"vector": vectors(inputs)}, "vector", BUCKETS, 4)


GOLDEN = [text(1, 2), text(3, 4, 5), text(6, 7, 8, 9, 10, 11), text(12)]


def test_an_exact_plan_passes_in_every_bucket() -> None:
    shapes = []

    def run(inputs: Arrays) -> npt.NDArray[np.float32]:
        shapes.append(inputs["input_ids"].shape)
        return pooled(inputs)

    report = judged(GOLDEN, run)
    assert report.passed
    assert (report.texts, list(report.buckets)) == (4, ["4", "8"])
    assert min(report.least_cosine, report.least_together) > 0.999999
    assert {(1, 4), (1, 8), (4, 4), (4, 8)} == set(shapes)


def test_a_plan_that_reads_padding_fails_by_bucket() -> None:
    def run(inputs: Arrays) -> npt.NDArray[np.float32]:
        return pooled({"input_ids": inputs["input_ids"], "attention_mask": np.ones_like(inputs["attention_mask"])})

    report = judged(GOLDEN, run)
    assert not report.passed
    assert any("in a full batch of 8 tokens" in fault for fault in report.faults)


def test_a_plan_whose_batch_mates_matter_fails() -> None:
    def run(inputs: Arrays) -> npt.NDArray[np.float32]:
        vectors = pooled(inputs)
        return vectors + (0.05 * vectors.mean(0) if len(vectors) > 1 else 0)

    report = judged(GOLDEN, run)
    assert report.least_cosine > 0.999999
    assert len(report.faults) == 2


def test_a_plan_of_another_model_fails_against_the_reference() -> None:
    other = [GoldenText(one.ids, two.vector) for one, two in zip(GOLDEN, reversed(GOLDEN), strict=True)]
    report = judged(other, pooled)
    assert "to the reference" in report.faults[0]
    assert len(report.faults) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_numbers_that_are_none_never_pass(bad: float) -> None:
    report = judged(GOLDEN, lambda inputs: np.full((len(inputs["input_ids"]), 6), bad, np.float32))
    assert report.least_cosine == -1
    assert len(report.faults) == 3


def test_a_bucket_that_no_text_fits_is_no_fault() -> None:
    report = judged([text(1, 2, 3, 4, 5)], pooled)
    assert report.passed
    assert report.buckets["4"] == 1.0


def test_token_vectors_that_depend_on_batch_mates_fail_too_and_padding_s_do_not() -> None:
    """Rerankers read them; what stands where a text has no token is nobody's."""

    def tokens(inputs: Arrays, mates: float, padding: float) -> npt.NDArray[np.float32]:
        found = TABLE[inputs["input_ids"]] + mates * (len(inputs["input_ids"]) > 1)
        return np.asarray(found + padding * (1 - inputs["attention_mask"][:, :, None]), np.float32)

    def report(mates: float, padding: float) -> GateReport:
        return judged_by(
            GOLDEN,
            lambda inputs: {
                "vector": pooled(inputs),
                "tokens": tokens(inputs, mates, padding * len(inputs["input_ids"])),
            },
            "vector",
            BUCKETS,
            4,
        )

    assert report(mates=0, padding=9).passed
    assert len(report(mates=0.1, padding=0).faults) == 2
    assert not report(mates=np.nan, padding=0).passed
