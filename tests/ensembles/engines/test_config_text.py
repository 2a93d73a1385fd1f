from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from zooserve_ensembles.engines.config_text import BadConfig, Message, read_config

ROOT = Path(__file__).parents[3] / "model_repository" / "zoo"
CONFIGS = sorted([*ROOT.glob("*/config.pbtxt"), *ROOT.glob("*/configs/*.pbtxt")])


def tensors(messages: list[Message]) -> list[tuple[str, str, list[str]]]:
    return [(each.text("name"), each.text("data_type"), each.texts("dims")) for each in messages]


@pytest.mark.parametrize("file", CONFIGS, ids=lambda path: "/".join(path.parts[-3:]))
def test_a_configuration_reads_as_triton_s_own_protobuf_reads_it(file: Path) -> None:
    text = file.read_text()
    found, wanted = read_config(text), text_format.Parse(text, pb.ModelConfig())
    assert found.text("name") == wanted.name
    assert int(found.text("max_batch_size", "0")) == wanted.max_batch_size
    for kind in ("input", "output"):
        assert tensors(found.messages(kind)) == [
            (each.name, pb.DataType.Name(each.data_type), list(map(str, each.dims))) for each in getattr(wanted, kind)
        ]
    assert {key: value.text("string_value") for key, value in found.mapped("parameters").items()} == {
        key: value.string_value for key, value in wanted.parameters.items()
    }
    assert [warmup.text("name") for warmup in found.messages("model_warmup")] == [
        each.name for each in wanted.model_warmup
    ]
    for ours, theirs in zip(found.messages("model_warmup"), wanted.model_warmup, strict=True):
        assert {key: entry.texts("dims") for key, entry in ours.mapped("inputs").items()} == {
            key: list(map(str, entry.dims)) for key, entry in theirs.inputs.items()
        }
    assert [group.texts("profile") for group in found.messages("instance_group")] == [
        list(group.profile) for group in wanted.instance_group
    ]


@pytest.mark.parametrize(
    "text",
    [
        'name: "a\'b" dims: [ 1, -1 ]',
        "name: 'a\\'b', dims: 1; dims: -1 # and a comment",
        'name: "a" "\'b" dims: [1] dims: [-1]',
    ],
)
def test_the_ways_to_write_one_thing_are_one(text: str) -> None:
    config = read_config(text)
    assert config.text("name") == "a'b"
    assert config.texts("dims") == ["1", "-1"]


def test_a_message_may_stand_in_angles_and_behind_a_colon() -> None:
    assert read_config("a: { b: 1 } a < b: 2 >").messages("a") == [Message({"b": ["1"]}), Message({"b": ["2"]})]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("input {", "its end stands where"),
        ("name:", "name has no value"),
        ("a { b: 1 ]", "stands where a field's name should"),
        ('a: 1\nname: "open', "line 2 cannot be read"),
        ('name: "\\x"', "is no text"),
        ("1: 2", "1 stands where"),
    ],
)
def test_what_is_no_configuration_is_told(text: str, why: str) -> None:
    with pytest.raises(BadConfig, match=why):
        read_config(text)
