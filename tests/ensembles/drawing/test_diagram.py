"""What a drawing shows of an ensemble, of a sound one and of a broken one."""

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from zooserve_ensembles.drawing.diagram import Diagram, Kind, Link, Node, diagram_of

MODELS = """
name: "splitter" backend: "python" max_batch_size: 8
input { name: "text" data_type: TYPE_STRING dims: 1 }
output { name: "ids" data_type: TYPE_INT64 dims: -1 } output { name: "mask" data_type: TYPE_INT64 dims: -1 }
---
name: "encoder" backend: "onnxruntime" max_batch_size: 8
input { name: "ids" data_type: TYPE_INT64 dims: -1 } input { name: "mask" data_type: TYPE_INT64 dims: -1 }
output { name: "vector" data_type: TYPE_FP32 dims: 4 }
"""

SPLIT = 'step { model_name: "splitter" model_version: 1 input_map { key: "text" value: "text" } %s }'
SPLIT_BOTH = SPLIT % 'output_map { key: "ids" value: "ids" } output_map { key: "mask" value: "mask" }'
ENCODE = (
    'step { model_name: "encoder" model_version: -1 input_map { key: "ids" value: "ids" } '
    'input_map { key: "mask" value: "mask" } output_map { key: "vector" value: "embedding" } }'
)


def drawn(*steps: str, output: str = "embedding") -> Diagram:
    models = [text_format.Parse(text, pb.ModelConfig()) for text in MODELS.split("---")]
    ensemble = text_format.Parse(
        f"""name: "toy" platform: "ensemble" max_batch_size: 8
        input {{ name: "text" data_type: TYPE_STRING dims: 1 }}
        output {{ name: "{output}" data_type: TYPE_FP32 dims: 4 }}
        ensemble_scheduling {{ {" ".join(steps)} }}""",
        pb.ModelConfig(),
    )
    return diagram_of(ensemble, {model.name: model for model in models})


def test_steps_tell_their_version_and_backend() -> None:
    found = drawn(SPLIT_BOTH, ENCODE)
    assert [(node.title, node.detail) for node in found.nodes if node.kind is Kind.STEP] == [
        ("splitter", "version 1, python"),
        ("encoder", "latest version, onnxruntime"),
    ]


def test_inputs_and_outputs_are_nodes_with_their_types() -> None:
    nodes = drawn(SPLIT_BOTH, ENCODE).nodes
    assert nodes[0] == Node(Kind.INPUT, "text", "STRING [1]")
    assert nodes[-1] == Node(Kind.OUTPUT, "embedding", "FP32 [4]")


def test_tensors_between_two_steps_share_a_link_and_are_typed() -> None:
    links = drawn(SPLIT_BOTH, ENCODE).links
    assert links == (Link(0, 1), Link(1, 2, ("ids INT64 [-1]", "mask INT64 [-1]")), Link(2, 3))


def test_a_step_whose_model_is_missing_is_drawn_as_a_fault() -> None:
    found = drawn(SPLIT_BOTH, ENCODE.replace('"encoder"', '"coder"'))
    assert Node(Kind.FAULT, "coder", "latest version, no configuration here") in found.nodes


def test_an_edge_that_nothing_gives_is_drawn_as_a_fault() -> None:
    found = drawn(SPLIT % 'output_map { key: "ids" value: "ids" }', ENCODE)
    assert Node(Kind.FAULT, "mask", "nothing gives it") in found.nodes


def test_an_edge_that_nobody_reads_is_drawn_as_a_fault() -> None:
    found = drawn(SPLIT_BOTH, ENCODE, output="other")
    assert Node(Kind.FAULT, "embedding", "nobody reads it") in found.nodes


def test_a_step_that_feeds_itself_is_drawn_as_a_fault_without_a_link() -> None:
    found = drawn(ENCODE.replace('key: "ids" value: "ids"', 'key: "ids" value: "embedding"'))
    assert Node(Kind.FAULT, "encoder", "takes embedding, which it gives itself", "onnxruntime") in found.nodes
    assert all(link.source != link.target for link in found.links)


def test_a_tensor_that_the_model_does_not_have_has_no_type() -> None:
    found = drawn(SPLIT_BOTH.replace('key: "mask"', 'key: "msk"'), ENCODE)
    assert "mask of unknown type" in found.links[1].labels
