"""Backends, their files' names, and instances."""

from pathlib import Path
from typing import Any

import pytest

from zooserve_ensembles.backends import BACKENDS, backend_of_file
from zooserve_ensembles.checking import Target

BARE = 'name: "m"\n{backend}\n'


def put(shelf: Any, backend: str, *files: str, more: str = "") -> None:
    """One model with a backend's line and files in its version."""
    shelf.add("m", BARE.format(backend=backend) + more, code="")
    for name in files:
        path: Path = shelf.root / "m" / "1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"weights")


def fil(kind: str) -> str:
    """FIL with the parameter that chooses its file."""
    return f'backend: "fil"\nparameters {{ key: "model_type" value {{ string_value: "{kind}" }} }}'


SOUND = [
    ('platform: "tensorrt_plan"', ["model.plan"]),
    ('backend: "tensorrt"', ["model.plan"]),
    ('backend: "pytorch"', ["model.pt"]),
    ('platform: "pytorch_libtorch"', ["model.pt"]),
    ('backend: "openvino"', ["model.xml", "model.bin"]),
    ('backend: "vllm"', ["model.json"]),
    ('backend: "fil"', ["xgboost.model"]),
    (fil("lightgbm"), ["model.txt"]),
    (fil("xgboost_json"), ["xgboost.json"]),
    (fil("treelite_checkpoint"), ["checkpoint.tl"]),
    ('platform: "tensorflow_savedmodel"', ["model.savedmodel/saved_model.pb"]),
    ('platform: "tensorflow_graphdef"', ["model.graphdef"]),
    ('backend: "tensorrtllm"', []),
    ('backend: "dali"', ["model.dali"]),
    ('backend: "tensorrt"\ndefault_model_filename: "fp16.plan"', ["fp16.plan"]),
    ('backend: "tensorrt"\ncc_model_filenames { key: "9.0" value: "h200.plan" }', ["h200.plan"]),
    ('backend: "mine"', ["anything"]),
]


@pytest.mark.parametrize(("backend", "files"), SOUND)
def test_each_backend_reads_files_of_its_own(empty: Any, backend: str, files: list[str]) -> None:
    put(empty, backend, *files)
    assert empty.told(Target.CONTAINER) == []


MISNAMED = [
    ('backend: "onnxruntime"', "resnet.onnx", "reads model.onnx, but m/1/ holds resnet.onnx"),
    ('platform: "tensorrt_plan"', "engine.plan", "reads model.plan"),
    ('backend: "pytorch"', "resnet.pt", "reads model.pt"),
    ('backend: "python"', "main.py", "reads model.py"),
    (fil("lightgbm"), "xgboost.json", "reads model.txt"),
    ('backend: "tensorrt"\ndefault_model_filename: "fp16.plan"', "model.plan", "reads fp16.plan"),
    ('backend: "vllm"', "engine.json", "reads model.json"),
]


@pytest.mark.parametrize(("backend", "file", "says"), MISNAMED)
def test_a_file_of_the_wrong_name_is_told_with_the_right_one(empty: Any, backend: str, file: str, says: str) -> None:
    put(empty, backend, file)
    assert [line[2] for line in empty.told()] == ["weights-misnamed"]
    assert says in empty.messages()
    assert file in empty.messages()


def test_openvino_needs_its_weights_beside_the_graph(empty: Any) -> None:
    put(empty, 'backend: "openvino"', "model.xml")
    assert empty.told() == [("m/1/model.xml", 0, "version-half-copied")]
    assert "model.bin" in empty.messages()


def test_a_saved_model_needs_its_graph(empty: Any) -> None:
    put(empty, 'platform: "tensorflow_savedmodel"', "model.savedmodel/variables/variables.index")
    assert empty.told() == [("m/1/model.savedmodel", 0, "version-half-copied")]


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_the_embedded_triton_says_which_backends_it_lacks(empty: Any, name: str) -> None:
    put(empty, f'backend: "{name}"')
    lacking = not BACKENDS[name].embedded
    at_a_loss = [("m/config.pbtxt", 2, "backend-not-embedded")] if lacking else []
    told = [line for line in empty.told(notes=True) if line[2] == "backend-not-embedded"]
    assert told == at_a_loss
    assert empty.check(Target.EMBEDDED).passes() is not lacking
    assert empty.check(Target.CONTAINER).passes()
    if lacking:
        assert "the embedded Triton cannot run backend" in empty.messages()


NAMES = [
    ('platform: "python"', "backend-unknown", 'write backend: "python" instead'),
    ('platform: "onnxruntime"', "backend-unknown", 'write backend: "onnxruntime" instead'),
    ('backend: "onnxrunime"', "backend-unknown", "Did you mean onnxruntime?"),
    (
        'platform: "onnxruntime_onnx" backend: "python"',
        "backend-contradiction",
        'platform: "onnxruntime_onnx" does not',
    ),
]


@pytest.mark.parametrize(("backend", "rule", "says"), NAMES)
def test_a_backend_of_the_wrong_name(empty: Any, backend: str, rule: str, says: str) -> None:
    put(empty, backend, "model.py")
    (empty.root / "m" / "1" / "model.py").write_text("class TritonPythonModel: ...\n")
    assert ("m/config.pbtxt", 2, rule) in empty.told()
    assert says in empty.messages()


def test_a_backend_of_ones_own_is_only_noted(empty: Any) -> None:
    put(empty, 'backend: "my_company_engine"')
    assert empty.told() == []
    assert ("m/config.pbtxt", 2, "backend-own") in empty.told(notes=True)


@pytest.mark.parametrize("files", [[], ["weights.bin"]])
def test_nothing_tells_the_backend(empty: Any, files: list[str]) -> None:
    put(empty, "# no backend", *files)
    assert empty.told() == [("m/config.pbtxt", 1, "backend-missing")]
    # An empty version may be a clone whose weights are still to come.
    assert empty.check().passes() is not bool(files)


def test_a_file_may_tell_the_backend(empty: Any) -> None:
    put(empty, "# no backend", "model.plan")
    assert empty.told() == []
    assert backend_of_file(["model.plan", "model.py"]) == "tensorrt"


def test_instances_on_a_gpu_need_one(empty: Any) -> None:
    put(empty, 'backend: "python"', "model.py", more="instance_group [\n  {\n    kind: KIND_GPU  # here\n  }\n]\n")
    (empty.root / "m" / "1" / "model.py").write_text("class TritonPythonModel: ...\n")
    assert empty.told(Target.EMBEDDED) == empty.here("instance-needs-gpu")
    assert empty.told() == []


def test_gpus_of_a_cpu_instance(empty: Any) -> None:
    put(empty, 'backend: "tensorrt"', "model.plan", more="instance_group [ { kind: KIND_CPU gpus: [ 0 ] } ]  # here\n")
    assert empty.told() == empty.here("instance-contradiction")


def test_an_onnx_model_without_a_count_gets_two_instances(empty: Any) -> None:
    put(empty, 'backend: "onnxruntime"', more="instance_group [ { kind: KIND_CPU } ]  # here\n")
    assert empty.here("instance-count")[0] in empty.told(Target.EMBEDDED)
    assert "instance-count" not in {rule for _, _, rule in empty.told(notes=True)}


@pytest.mark.parametrize("model", ["pipeline", "encoder"])
def test_fields_that_the_embedded_triton_does_not_know(shelf: Any, model: str) -> None:
    if model == "pipeline":
        shelf.edit("pipeline", "ensemble_scheduling {\n", "ensemble_scheduling {\n  max_inflight_requests: 8  # here\n")
    else:
        shelf.append("encoder", "model_metrics { }  # here\n")
    assert shelf.told(Target.EMBEDDED) == shelf.here("field-too-new")
    assert shelf.told(Target.CONTAINER, notes=True) == []
    assert not shelf.check(Target.EMBEDDED).passes()
