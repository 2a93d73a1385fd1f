"""What `zooserve new` writes: a repository that the checker passes, and nothing over what is there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from zooserve.errors import ScaffoldRefused
from zooserve_ensembles.backends import BACKENDS
from zooserve_ensembles.checking import Target, check_repository
from zooserve_ensembles.golden import golden_faults
from zooserve_ensembles.graphs.writing import floats, int64s
from zooserve_ensembles.scaffolding.embedders import (
    catalogue_entry,
    embedder_copies,
    embedder_files,
    read_export,
)
from zooserve_ensembles.scaffolding.ensembles import ensemble_files, ensemble_names
from zooserve_ensembles.scaffolding.models import SCAFFOLDED, linear_graph, model_files, runs_here
from zooserve_ensembles.scaffolding.names import refuse_names
from zooserve_ensembles.scaffolding.placing import place

RULES_OF_A_PLACE = {"weights-absent", "backend-not-embedded", "instance-needs-gpu"}


def findings(root: Path, target: Target | None = Target.EMBEDDED) -> dict[str, str]:
    return {finding.rule: finding.message for finding in check_repository(root, target).findings}


@pytest.mark.parametrize(
    "make",
    [lambda: model_files("mine", "onnxruntime"), lambda: model_files("mine", "python"), lambda: ensemble_files("mine")],
)
def test_what_can_run_here_has_no_faults_at_all(tmp_path: Path, make: Callable[[], Any]) -> None:
    place(tmp_path, make())
    assert findings(tmp_path) == {}


@pytest.mark.parametrize("backend", [backend for backend in SCAFFOLDED if not runs_here(backend)])
def test_what_cannot_run_here_lacks_its_file_and_nothing_else(tmp_path: Path, backend: str) -> None:
    place(tmp_path, model_files("mine", backend))
    found = findings(tmp_path)
    assert set(found) <= RULES_OF_A_PLACE
    assert f"cannot run backend {backend}" in found["backend-not-embedded"]
    readme = (tmp_path / "mine" / "README.md").read_text()
    for file in BACKENDS[backend].files:
        assert f"`{file}`" in readme
    if BACKENDS[backend].files:
        assert "put " in found["weights-absent"]


def test_the_onnx_model_answers_its_golden_answers(tmp_path: Path) -> None:
    place(tmp_path, model_files("mine", "onnxruntime"))
    session = ort.InferenceSession(tmp_path / "mine/1/model.onnx")

    def ask(model: str, inputs: Any) -> dict[str, Any]:
        return {"y": session.run(["y"], {"x": np.array(inputs["x"]["data"], np.float32)})[0]}

    assert golden_faults(tmp_path / "mine/golden.json", ask) == []
    wrong = golden_faults(tmp_path / "mine/golden.json", lambda model, inputs: {"y": ask(model, inputs)["y"] + 0.01})
    assert wrong[0] == "row 0: y is off by 1.00e-02; 1e-05 is allowed"
    assert golden_faults(tmp_path / "mine/golden.json", lambda *_: {"z": 1})[0] == "row 0: there is no output y, but z"
    assert "has the shape [1]" in golden_faults(tmp_path / "mine/golden.json", lambda *_: {"y": [np.nan]})[0]
    assert "off by nan" in golden_faults(tmp_path / "mine/golden.json", lambda *_: {"y": [[np.nan] * 2]})[0]


@pytest.mark.parametrize("name", ["", "Mine", "9lives", "my-model", "a b", "../up", "_x", "straße", "a" * 101])
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(ScaffoldRefused, match="lower-case letters"):
        refuse_names([name], set())


def test_a_name_that_is_taken_is_refused_also_where_only_a_stage_would_have_it() -> None:
    with pytest.raises(ScaffoldRefused, match="mine_head is taken"):
        refuse_names(ensemble_names("mine"), {"mine_head"})


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "zoo" / "mine_head").mkdir(parents=True)
    with pytest.raises(ScaffoldRefused, match=r"mine_head is in .* already"):
        place(tmp_path / "zoo", ensemble_files("mine"))
    assert [path.name for path in tmp_path.rglob("*")] == ["zoo", "mine_head"]


def test_a_copy_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    copies = {Path("mine/1/more"): tmp_path / "not there"}
    with pytest.raises(ScaffoldRefused, match="No such file"):
        place(tmp_path / "zoo", model_files("mine", "python"), copies)
    assert [path.name for path in tmp_path.rglob("*")] == ["zoo"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ScaffoldRefused, match="cannot be written to"):
        place(tmp_path / "file" / "zoo", model_files("mine", "python"))


def test_an_unknown_backend_is_refused_with_those_there_are() -> None:
    with pytest.raises(ScaffoldRefused, match="'caffe': one of onnxruntime, python, tensorrt"):
        model_files("mine", "caffe")


class TestFromAnExport:
    @pytest.fixture
    def exported(self, tmp_path: Path) -> Path:
        """The form of an export, with a graph of the right contract in it."""
        folder = tmp_path / "exported"
        folder.mkdir()
        record = {"kind": "bi-encoder", "source": "/models/mine", "max_tokens": 100, "dimensions": 4, "pad_id": 1}
        record |= {"pooling": "mean", "normalize": True, "parity": {"max_difference": 1e-7, "texts": 1}}
        (folder / "export.json").write_text(json.dumps(record))
        answers = {"made_by": "sentence-transformers 6", "rows": [{"input": "a", "answer": [0.5] * 4}]}
        (folder / "golden.json").write_text(json.dumps(answers))
        (folder / "tokenizer.json").write_text('{"model": {"type": "WordLevel", "vocab": {"a": 0}}}')
        graph = linear_graph("mine", "x", "y", np.eye(4, dtype=np.float32), np.zeros(4, np.float32))
        del graph.nodes[:]
        wide = graph.node("Cast", ["input_ids"], "wide", to=1)
        axis = graph.constant("axis", [2], np.int64)
        tokens = graph.node("Add", [graph.node("Unsqueeze", [wide, axis], "column"), "bias"], "token_embeddings")
        graph.node("ReduceMean", [tokens, graph.constant("length", [1], np.int64)], "sentence_embedding", keepdims=0)
        shape = ["batch", "length"]
        outputs = floats({"sentence_embedding": ["batch", 4], "token_embeddings": [*shape, 4]})
        content = graph.serialized(int64s({"input_ids": shape, "attention_mask": shape}), outputs)
        (folder / "model.onnx").write_bytes(content)
        return folder

    def test_it_becomes_a_tokenizer_an_encoder_and_an_ensemble_without_faults(
        self, exported: Path, tmp_path: Path
    ) -> None:
        export = read_export(exported)
        place(tmp_path / "zoo", embedder_files("mine", export), embedder_copies("mine", export))
        assert findings(tmp_path / "zoo") == {}
        assert export.buckets == (16, 32, 64, 100)
        assert (tmp_path / "zoo/mine_encoder/1/model.onnx").read_bytes() == (exported / "model.onnx").read_bytes()
        config = (tmp_path / "zoo/mine_tokenizer/config.pbtxt").read_text()
        assert 'key: "pad_id" value { string_value: "1" }' in config
        assert not config.startswith("# Generated by")  # it is its owner's to edit

    def test_its_catalogue_entry_is_one_that_the_catalogue_takes(self, exported: Path, tmp_path: Path) -> None:
        from zooserve.catalogue import load_catalogue

        file = tmp_path / "zoo.yaml"
        file.write_text("models:" + catalogue_entry("mine", read_export(exported), "zoo"))
        model = load_catalogue(file).enabling("mine").resolve("mine")
        assert (model.task, model.dimensions, model.buckets) == ("embed", 4, (16, 32, 64, 100))
        assert model.source == "mine"

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"kind": "cross-encoder"}, "holds a cross-encoder"),
            ({"max_tokens": 10**30}, "Set max_seq_length"),
            ({"dimensions": None}, "export the version again"),
            ({"parity": {}}, "export the version again"),
        ],
    )
    def test_what_is_no_bi_encoder_to_serve_is_refused(self, exported: Path, change: Any, told: str) -> None:
        record = json.loads((exported / "export.json").read_text()) | change
        (exported / "export.json").write_text(json.dumps(record))
        with pytest.raises(ScaffoldRefused, match=told):
            read_export(exported)

    def test_a_folder_that_is_no_export_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ScaffoldRefused, match=r"has no export\.json, golden\.json, model\.onnx, tokenizer\.json"):
            read_export(tmp_path)
