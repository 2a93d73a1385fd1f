"""A BERT encoder's graph with mean pooling and L2 normalisation grafted on, in one file."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

__all__ = ["build", "graft_pooling", "merge_external_data", "pooling_constants", "pooling_nodes"]

# The smallest divisor: a row of padding alone becomes a zero vector instead of NaN.
EPSILON = 1e-12


def build(inputs: Mapping[str, Path]) -> bytes:
    """The encoder of `model.onnx` and `model.onnx_data` as one graph that returns sentence and token embeddings."""
    import onnx

    model = onnx.load(inputs["model.onnx"], load_external_data=False)
    merge_external_data(model, inputs["model.onnx_data"].read_bytes())
    graft_pooling(model)
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


def merge_external_data(model: "ModelProto", data: bytes) -> None:
    """Move tensors that lie in the one external file `data` into the model itself."""
    from onnx import TensorProto

    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        where = {entry.key: entry.value for entry in tensor.external_data}
        start = int(where.get("offset", 0))
        length = int(where["length"]) if "length" in where else len(data) - start
        if start + length > len(data):
            raise ValueError(f"tensor {tensor.name} ends at byte {start + length}, the data file has {len(data)}")
        tensor.raw_data = data[start : start + length]
        del tensor.external_data[:]
        tensor.data_location = TensorProto.DEFAULT


def graft_pooling(model: "ModelProto", hidden: str = "last_hidden_state") -> None:
    """Turn a graph that ends in hidden states into one that ends in `sentence_embedding` and `token_embeddings`.

    Token types become zeros made inside the graph, so two inputs remain: `input_ids` and `attention_mask`.
    """
    from onnx import TensorProto, helper

    graph = model.graph
    width = graph.output[0].type.tensor_type.shape.dim[2].dim_value
    _rename(graph, hidden, "token_embeddings")
    before, after = _token_type_zeros(graph), pooling_nodes("token_embeddings")
    nodes = [*before, *graph.node, *after]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    graph.initializer.extend(pooling_constants())
    tokens, vectors = ["batch", "length"], ["batch", width]
    graph.input.append(helper.make_tensor_value_info("input_ids", TensorProto.INT64, tokens))
    graph.input.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, tokens))
    graph.output.append(helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, vectors))
    graph.output.append(helper.make_tensor_value_info("token_embeddings", TensorProto.FLOAT, [*tokens, width]))


def _rename(graph: "GraphProto", old: str, new: str) -> None:
    for node in graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = new


def _token_type_zeros(graph: "GraphProto") -> list["NodeProto"]:
    from onnx import TensorProto, helper

    if all(given.name != "token_type_ids" for given in graph.input):
        return []
    zero = helper.make_tensor("value", TensorProto.INT64, [1], [0])
    return [
        helper.make_node("Shape", ["input_ids"], ["token_types/shape"]),
        helper.make_node("ConstantOfShape", ["token_types/shape"], ["token_type_ids"], value=zero),
    ]


def pooling_nodes(hidden: str) -> list["NodeProto"]:
    """From `hidden` [batch, length, width] and `attention_mask` to `sentence_embedding`, the normalised mean."""
    from onnx import TensorProto, helper

    node = helper.make_node
    return [
        node("Cast", ["attention_mask"], ["pool/mask"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["pool/mask", "pool/last_axis"], ["pool/weights"]),
        node("Mul", [hidden, "pool/weights"], ["pool/masked"]),
        node("ReduceSum", ["pool/masked", "pool/length_axis"], ["pool/sum"], keepdims=0),
        # The mean's divisor cancels in the normalisation, but without it a long text's squares lose precision.
        node("ReduceSum", ["pool/weights", "pool/length_axis"], ["pool/count"], keepdims=0),
        node("Max", ["pool/count", "pool/epsilon"], ["pool/divisor"]),
        node("Div", ["pool/sum", "pool/divisor"], ["pool/mean"]),
        node("ReduceL2", ["pool/mean", "pool/length_axis"], ["pool/norm"], keepdims=1),
        node("Max", ["pool/norm", "pool/epsilon"], ["pool/norm_divisor"]),
        node("Div", ["pool/mean", "pool/norm_divisor"], ["sentence_embedding"]),
    ]


def pooling_constants() -> list["TensorProto"]:
    """What those nodes read besides."""
    from onnx import TensorProto, helper

    return [
        helper.make_tensor("pool/last_axis", TensorProto.INT64, [1], [2]),
        helper.make_tensor("pool/length_axis", TensorProto.INT64, [1], [1]),
        helper.make_tensor("pool/epsilon", TensorProto.FLOAT, [], [EPSILON]),
    ]
