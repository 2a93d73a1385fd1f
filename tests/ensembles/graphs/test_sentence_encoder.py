import base64
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, helper

from zooserve_ensembles.graphs.sentence_encoder import build, graft_pooling, merge_external_data

WORDS, WIDTH = 11, 8
TABLE = np.random.default_rng(0).normal(size=(WORDS, WIDTH)).astype(np.float32)
TYPES = np.random.default_rng(1).normal(size=(2, WIDTH)).astype(np.float32)


def lookup_encoder() -> onnx.ModelProto:
    """The smallest graph with an encoder's inputs and output: word vector plus type vector."""
    ids = ["input_ids", "attention_mask", "token_type_ids"]
    shape = ["batch_size", "sequence_length"]
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["words"]),
            helper.make_node("Gather", ["types", "token_type_ids"], ["kinds"]),
            helper.make_node("Add", ["words", "kinds"], ["last_hidden_state"]),
        ],
        "lookup",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ids],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*shape, WIDTH])],
        [onnx.numpy_helper.from_array(TABLE, "table"), onnx.numpy_helper.from_array(TYPES, "types")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def grafted() -> bytes:
    model = lookup_encoder()
    graft_pooling(model)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


GRAFTED = grafted()


def pooled(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    hidden = (TABLE[ids] + TYPES[0]).astype(np.float64)
    mean = (hidden * mask[..., None]).sum(1) / np.maximum(mask.sum(1, keepdims=True), 1)
    return mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)


token_batches = st.tuples(st.integers(1, 5), st.integers(1, 9)).flatmap(
    lambda shape: st.tuples(
        arrays(np.int64, shape, elements=st.integers(0, WORDS - 1)),
        arrays(np.int64, shape[0], elements=st.integers(1, shape[1])),
    )
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(token_batches)
def test_the_graft_is_the_mean_over_real_tokens_at_unit_length(run_graph, batch) -> None:
    ids, lengths = batch
    mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
    outputs = run_graph(GRAFTED, input_ids=ids, attention_mask=mask)
    np.testing.assert_allclose(outputs["sentence_embedding"], pooled(ids, mask), atol=2e-6)
    np.testing.assert_allclose(outputs["token_embeddings"], TABLE[ids] + TYPES[0], atol=1e-6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(token_batches, st.integers(1, 6))
def test_padding_changes_no_vector(run_graph, batch, padding) -> None:
    ids, lengths = batch
    mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
    bare = run_graph(GRAFTED, input_ids=ids, attention_mask=mask)["sentence_embedding"]
    wider = ((0, 0), (0, padding))
    longer = run_graph(GRAFTED, input_ids=np.pad(ids, wider), attention_mask=np.pad(mask, wider))
    np.testing.assert_allclose(longer["sentence_embedding"], bare, atol=2e-6)


def test_a_row_of_padding_alone_is_a_zero_vector_not_nan(run_graph) -> None:
    nothing = np.zeros((2, 4), dtype=np.int64)
    vectors = run_graph(GRAFTED, input_ids=nothing, attention_mask=nothing)["sentence_embedding"]
    assert np.array_equal(vectors, np.zeros((2, WIDTH), dtype=np.float32))


def test_token_types_are_no_input_any_more() -> None:
    model = onnx.load_from_string(GRAFTED)
    assert [given.name for given in model.graph.input] == ["input_ids", "attention_mask"]
    assert [output.name for output in model.graph.output] == ["sentence_embedding", "token_embeddings"]


def external(data: bytes, offset: int, length: int) -> onnx.ModelProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "anything"), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return helper.make_model(helper.make_graph([], "g", [], [], [tensor]))


def test_external_data_moves_into_the_model() -> None:
    values = np.array([1.5, -2.0], dtype=np.float32)
    model = external(b"", 4, 8)
    merge_external_data(model, b"\0\0\0\0" + values.tobytes())
    tensor = model.graph.initializer[0]
    assert np.array_equal(onnx.numpy_helper.to_array(tensor), values)
    assert tensor.data_location == TensorProto.DEFAULT
    assert not tensor.external_data


def test_a_data_file_that_ends_too_early_is_refused_by_the_tensors_name() -> None:
    with pytest.raises(ValueError, match=r"tensor w ends at byte 12, the data file has 8"):
        merge_external_data(external(b"", 4, 8), b"\0" * 8)


def test_build_reads_its_two_files_by_name(tmp_path: Path) -> None:
    onnx.save(lookup_encoder(), tmp_path / "graph")
    (tmp_path / "data").touch()
    built = build({"model.onnx": tmp_path / "graph", "model.onnx_data": tmp_path / "data"})
    assert next(output.name for output in onnx.load_from_string(built).graph.output) == "sentence_embedding"


def encoded(tokenizer_file: Path, text: str) -> dict[str, np.ndarray]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    encoding = tokenizer.encode(text)
    return {"input_ids": np.array([encoding.ids]), "attention_mask": np.array([encoding.attention_mask])}


def test_the_placed_encoder_equals_sentence_transformers(placed, golden, run_graph) -> None:
    encoder, tokenizer = placed("zoo/embed_encoder/1/model.onnx"), placed("zoo/embed_tokenizer/1/tokenizer.json")
    for row in golden("embed")["rows"]:
        reference = np.frombuffer(base64.b64decode(row["vector"]), dtype="<f4")
        vector = run_graph(encoder, **encoded(tokenizer, row["text"]))["sentence_embedding"][0]
        assert vector @ reference >= 0.999999, row["text"][:60]
        assert np.abs(vector - reference).max() < 1e-6, row["text"][:60]


def test_every_encoder_place_holds_the_same_bytes(placed) -> None:
    places = [placed(f"zoo/{name}_encoder/1/model.onnx") for name in ("embed", "embed_bulk", "rerank", "rerank_bulk")]
    assert len({path.stat().st_size for path in places}) == 1
    assert len({path.read_bytes() for path in places}) == 1
