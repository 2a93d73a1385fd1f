"""The Python-based ONNX Runtime backend inside a real Triton, over tiny models."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.request import urlopen

import numpy as np
import psutil
import pytest
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.e2e


def row(*numbers: float) -> dict[str, np.ndarray]:
    return {"x": np.array([numbers], np.float32)}


def page(pond: Any) -> str:
    with urlopen(f"http://{pond.server.addresses.metrics}/metrics") as answer:
        return answer.read().decode()


def runs(pond: Any, model: str) -> int:
    found = re.search(rf'zooserve_onnx_runs{{model="{model}",version="1"}} (\d+)', page(pond))
    return int(found[1]) if found else 0


def test_only_the_outputs_asked_for_come_back(pond: Any) -> None:
    assert pond.infer("single", row(1, 2), ["doubled"])["doubled"].tolist() == [[2, 4]]
    both = pond.infer("single", row(1, 2), ["plus_one", "doubled"])
    assert both["plus_one"].tolist() == [[2, 3]]


def test_requests_of_unequal_shape_share_a_call_and_run_once_per_shape(pond: Any) -> None:
    calls, ran = pond.statistics("fours")["execution_count"], runs(pond, "fours")
    shapes = [(1, 2), (3, 4, 5), (6, 7), (8, 9, 10)]
    outputs = ["doubled", "plus_one", "doubled", "doubled"]
    answers = pond.at_once(
        [
            lambda numbers=numbers, output=output: pond.infer("fours", row(*numbers), [output])[output]
            for numbers, output in zip(shapes, outputs, strict=True)
        ]
    )
    assert [answer.tolist() for answer in answers] == [[[2, 4]], [[4, 5, 6]], [[12, 14]], [[16, 18, 20]]]
    # A call is counted when it ends, after its answers have left.
    pond.eventually(lambda: pond.statistics("fours")["execution_count"] == calls + 1)
    assert runs(pond, "fours") == ran + 2


def test_each_instance_of_a_model_counts_its_own_runs(pond: Any) -> None:
    pond.at_once([lambda number=number: pond.infer("twins", row(number), ["doubled"]) for number in range(8)])
    series = r'zooserve_instance_runs_total{model="twins",model_instance="(\w+)",version="1"} (\d+)'
    by_instance = {name: int(count) for name, count in re.findall(series, page(pond))}
    assert set(by_instance) == {"twins_0_0", "twins_0_1"}
    assert sum(by_instance.values()) == runs(pond, "twins") == 8


def test_a_bad_row_fails_its_own_request_and_names_the_model(pond: Any) -> None:
    ids = [(0, 1), (2, 3), (4, 999), (5, 6)]
    outcomes = pond.at_once(
        [lambda pair=pair: pond.infer("lookup", {"ids": np.array([pair], np.int64)}, ["rows"])["rows"] for pair in ids]
    )
    assert [isinstance(outcome, InferenceServerException) for outcome in outcomes] == [False, False, True, False]
    assert outcomes[2].status() == "400"
    assert outcomes[2].message().startswith("lookup version 1: ")
    assert outcomes[3].tolist() == [[[15, 16, 17], [18, 19, 20]]]


def test_a_batch_runs_in_slices_where_the_configuration_says_so(pond: Any) -> None:
    ran = runs(pond, "sliced")
    numbers = np.arange(10, dtype=np.float32).reshape(5, 2)
    assert (pond.infer("sliced", {"x": numbers}, ["doubled"])["doubled"] == numbers * 2).all()
    assert runs(pond, "sliced") == ran + 3


def test_rows_run_side_by_side_and_come_back_in_order(pond: Any) -> None:
    numbers = np.arange(10, dtype=np.float32).reshape(5, 2)
    ran = runs(pond, "side_by_side")
    for _ in range(3):
        assert (pond.infer("side_by_side", {"x": numbers}, ["doubled"])["doubled"] == numbers * 2).all()
    assert runs(pond, "side_by_side") == ran + 6


def test_a_model_without_batches_takes_its_tensor_whole(pond: Any) -> None:
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (pond.infer("unbatched", {"x": numbers}, ["doubled"])["doubled"] == numbers * 2).all()


def test_inputs_and_outputs_left_out_are_read_from_the_file(pond: Any) -> None:
    config = pond.client.get_model_config("completed")
    assert [(entry["name"], entry["data_type"], entry["dims"]) for entry in config["input"]] == [
        ("x", "TYPE_FP32", [-1])
    ]
    assert {entry["name"] for entry in config["output"]} == {"plus_one", "doubled"}
    assert pond.infer("completed", row(3), ["doubled"])["doubled"].tolist() == [[6]]


def test_niceness_reaches_every_thread_of_one_stub_and_of_no_other(pond: Any) -> None:
    stubs = psutil.Process(pond.server.pid).children(recursive=True)
    own = psutil.Process().nice()
    levels = [set(levels_of(stub)) for stub in stubs]
    assert levels.count({7}) == 1
    assert all(level in ({own}, {7}) for level in levels)


def levels_of(stub: psutil.Process) -> Iterator[int]:
    """The niceness of each of its threads; one may end while it is asked."""
    for thread in stub.threads():
        with suppress(ProcessLookupError):
            yield os.getpriority(os.PRIO_PROCESS, thread.id)


BROKEN = {
    "not_onnx": r"not_onnx version 1: ONNX Runtime cannot load model\.onnx: ",
    "no_file": r"no_file version 1: there is no model\.onnx in .*: run `zooserve fetch`",
    "wrong_output": r"wrong_output version 1: config declares output tripled; the file has plus_one, doubled",
    "wrong_type": r"wrong_type version 1: config declares input x as TYPE_INT32; the file has TYPE_FP32",
    "wrong_rank": r"wrong_rank version 1: config declares input x as \[-1, 5\]; the file has \[-1\]",
    "missing_input": r"missing_input version 1: the file needs the inputs x, scale; config declares no scale",
    "fixed_batch": r"fixed_batch version 1: max_batch_size is not 0, but the file's input x is \[1, -1\]",
    "no_openvino": r"no_openvino version 1: this ONNX Runtime has no OpenVINOExecutionProvider",
    "wordy": r'wordy version 1: parameter intra_op_thread_count is "two", not a whole number',
}


@pytest.mark.parametrize("model", BROKEN)
def test_a_broken_model_says_why_and_leaves_the_others_alone(pond: Any, model: str) -> None:
    state, reason = pond.state(model)
    assert state == "UNAVAILABLE"
    assert re.search(BROKEN[model], reason)
    assert pond.infer("single", row(1), ["doubled"])["doubled"].tolist() == [[2]]
