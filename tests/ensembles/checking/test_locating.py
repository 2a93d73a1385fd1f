"""Every form of protobuf's text format, with its lines."""

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from zooserve_ensembles.checking.locating import Unlocatable, locate

TEXT = """# a comment with { brackets } and "quotes"
name: "a" 'b'
  "c"
max_batch_size: - 8, platform : 'x # no comment';
input [
  { name: "one" dims: [ 1, 2 ] },
  <
    name: "two\\"s"
    dims: 3
    dims: 4
  >
]
input { name: "three" }
parameters { key: "k" value { string_value: "v" } }
parameters {
  key: "k"
  value: { string_value: "later" }
}
[type.googleapis.com/x] { a: 1 }
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (["name"], 2),
        (["max_batch_size"], 4),
        (["platform"], 4),
        ([("input", 0), "name"], 6),
        ([("input", 0), ("dims", 1)], 6),
        ([("input", 1)], 7),
        ([("input", 1), "name"], 8),
        ([("input", 1), ("dims", 1)], 10),
        ([("input", 2), "name"], 13),
        ([("input", 1), "reshape"], 7),
        ([("input", 9)], 0),
        ([("parameters", "k"), "value", "string_value"], 17),
        (["absent"], 0),
    ],
)
def test_each_field_has_its_line(path: list[str], line: int) -> None:
    assert locate(TEXT).line(path) == line


def test_adjacent_strings_are_one() -> None:
    assert locate(TEXT).fields[0].value == "abc"


@pytest.mark.parametrize("text", ["a {", "a: [ 1", "a: }", 'a: "x', "a", "} "])
def test_what_is_not_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(Unlocatable):
        locate(text)


@given(st.lists(st.tuples(st.text(), st.lists(st.integers(-1, 9), max_size=3)), max_size=4), st.booleans())
@settings(deadline=None, max_examples=50)
def test_whatever_protobuf_prints_is_located(tensors: list[tuple[str, list[int]]], angles: bool) -> None:
    config = model_config_pb2.ModelConfig()
    for name, dims in tensors:
        config.input.add(name=name.encode("utf-8", "replace").decode(), dims=dims)
    printed = text_format.MessageToString(config, pointy_brackets=angles)
    found = locate(printed)
    for index, tensor in enumerate(config.input):
        line = printed.split("\n")[found.line([("input", index), "name"]) - 1]
        assert not tensor.name or line.strip().startswith("name:")
        assert len(found.all("input")) == len(config.input)
