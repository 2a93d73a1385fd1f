"""Whatever a repository holds, the checker ends with a report."""

import tempfile
from os import mkfifo
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zooserve_ensembles.checking import Report, check_repository

NAMES = ["config.pbtxt", "1/model.onnx", "1/model.py", "1/tokenizer.json", "1/vocab.txt", "configs/gpu.pbtxt"]
HEADS = st.sampled_from(
    [b"", b'name: "m" backend: "onnxruntime" ', b'platform: "ensemble" ', b'{"model": ', b"\x08\x08:\x10"]
)


@given(st.dictionaries(st.sampled_from(NAMES), st.builds(bytes.__add__, HEADS, st.binary(max_size=60)), min_size=1))
@settings(deadline=None, max_examples=80)
def test_any_bytes_in_any_file_are_reported_on(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder, "m", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        assert isinstance(check_repository(Path(folder)), Report)


@pytest.mark.parametrize("file", ["pipeline/config.pbtxt", "tokenizer/config.pbtxt", "encoder/config.pbtxt"])
def test_a_configuration_without_any_one_of_its_lines_is_reported_on(shelf: Any, file: str) -> None:
    path = shelf.root / file
    lines = path.read_text().splitlines(keepends=True)
    for left_out in range(len(lines)):
        path.write_text("".join(lines[:left_out] + lines[left_out + 1 :]))
        report = shelf.check()
        assert all(finding.message and finding.place.file.exists() for finding in report.findings)
        assert not report.passes() or lines[left_out].strip(" ,\n") in HARMLESS


LONG = "x" * 400
ODD_FIELDS = {
    "a weights file of a name that is too long": f'default_model_filename: "{LONG}"',
    "a weights file with a NUL in its name": r'default_model_filename: "a\000b"',
    "labels of a name that is too long": f'output {{ name: "l" data_type: 11 dims: 1 label_filename: "{LONG}" }}',
    "a kind that stands for nothing": "instance_group { kind: 99 }",
    "a type that stands for nothing": 'input { name: "more" data_type: 99 dims: 1 }',
    "a sample's type that stands for nothing": 'model_warmup { inputs { key: "ids" value { data_type: 99 } } }',
    "a sample of a name that is too long": (
        f'model_warmup {{ name: "w" inputs {{ key: "ids" value {{ input_data_file: "{LONG}" }} }} }}'
    ),
}


@pytest.mark.parametrize("backend", ["python", "onnxruntime"])
@pytest.mark.parametrize("field", ODD_FIELDS.values(), ids=ODD_FIELDS)
def test_a_field_that_no_file_and_no_type_can_answer_to(shelf: Any, field: str, backend: str) -> None:
    shelf.edit("encoder", '"python"', f'"{backend}"')
    shelf.append("encoder", field)
    assert any(file.startswith("encoder") for file, _, _ in shelf.told())


@pytest.mark.parametrize("name", ["config.pbtxt", "1/model.onnx", "1/model.py", "1/tokenizer.json"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(empty: Any, name: str) -> None:
    empty.add("m", 'backend: "onnxruntime"', code="")
    (empty.root / "m" / name).unlink(missing_ok=True)
    mkfifo(empty.root / "m" / name)
    assert empty.told()


# A name may be left out, a comma too, and a backend that the file's name tells.
HARMLESS = {'name: "pipeline"', 'name: "tokenizer"', 'name: "encoder"', 'backend: "python"', ""}
