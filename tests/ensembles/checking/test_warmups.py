"""Warm-up samples, as Triton 2.51 refuses them."""

from typing import Any

import pytest

SAMPLE = """model_warmup [
  {
    name: "one"
    batch_size: 1
    inputs {
      key: "ids"
      value {
        data_type: TYPE_INT64
        dims: [ 2 ]
        zero_data: true
      }
    }
    inputs { key: "mask" value { data_type: TYPE_INT64 dims: [ 2 ] zero_data: true } }
  }
]
"""

FAULTS = [
    ("warmup-kind", "batch_size: 1", "batch_size: 9  # here", "max_batch_size is 8"),
    ("warmup-kind", "        data_type: TYPE_INT64\n", "        data_type: TYPE_INT32  # here\n", "it is INT64"),
    ("warmup-kind", "        dims: [ 2 ]\n", "        dims: [ 2, 2 ]  # here\n", "[2, 2], but it is [-1]"),
    ("warmup-kind", "        dims: [ 2 ]\n", "        dims: [ -1 ]  # here\n", "open size"),
    ("warmup-kind", "        zero_data: true\n", "", "gives ids no data"),
    ("warmup-inputs", 'name: "one"', 'name: "one"  # here', "leaves out mask"),
    ("warmup-inputs", 'inputs { key: "mask"', 'inputs { key: "masks"', "Did you mean mask?"),
    (
        "warmup-data",
        "        zero_data: true",
        '        input_data_file: "ids"  # here',
        "warmup/ids, which is not there",
    ),
]


@pytest.mark.parametrize(("rule", "old", "new", "says"), FAULTS)
def test_a_sample_that_triton_refuses(shelf: Any, rule: str, old: str, new: str, says: str) -> None:
    shelf.append("encoder", SAMPLE)
    assert shelf.told() == []
    if says == "leaves out mask":
        shelf.edit(
            "encoder", '    inputs { key: "mask" value { data_type: TYPE_INT64 dims: [ 2 ] zero_data: true } }\n', ""
        )
    shelf.edit("encoder", old, new)
    here = shelf.here(rule)
    told = [line for line in shelf.told() if line[2] == rule]
    assert told
    assert not here or told == here
    assert says in shelf.messages()


@pytest.mark.parametrize(
    ("size", "severity"),
    [(16, None), (15, "error"), (0, "error"), (24, "warning")],
)
def test_a_data_file_holds_one_row(shelf: Any, size: int, severity: str | None) -> None:
    shelf.append("encoder", SAMPLE)
    shelf.edit("encoder", "        zero_data: true", '        input_data_file: "ids"  # here')
    (shelf.root / "encoder" / "warmup").mkdir()
    (shelf.root / "encoder" / "warmup" / "ids").write_bytes(bytes(size))
    assert [str(finding.severity) for finding in shelf.check().findings] == ([severity] if severity else [])
    assert shelf.told() == (shelf.here("warmup-data") if severity else [])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x03\0\0\0abc", ""),
        (b"\0\0\0\0", ""),
        (b"abc and more", "this one is cut off"),
        (b"\x09\0\0\0abc", "this one is cut off"),
        (b"\x01\0\0\0a\x01\0\0\0b", "it has 2 strings, but a row has 1"),
        (b"", "it has 0 strings"),
    ],
)
def test_strings_follow_their_lengths(shelf: Any, content: bytes, says: str) -> None:
    shelf.append(
        "tokenizer",
        'model_warmup [ { name: "w" batch_size: 1 inputs { key: "text" value { data_type: TYPE_STRING dims: [ 1 ] '
        'input_data_file: "words" } } } ]  # here\n',
    )
    (shelf.root / "tokenizer" / "warmup").mkdir()
    (shelf.root / "tokenizer" / "warmup" / "words").write_bytes(content)
    assert shelf.told() == (shelf.here("warmup-data") if says else [])
    assert says in shelf.messages()
