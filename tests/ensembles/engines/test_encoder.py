import re
from collections.abc import Callable
from pathlib import Path

import pytest

from zooserve.errors import EngineRefused
from zooserve_ensembles.engines.encoder import read_encoder
from zooserve_ensembles.engines.pipelines import feeds_of

ZOO = Path(__file__).parents[3] / "model_repository" / "zoo"


def rewrite(repository: Path, old: str, new: str, file: str = "config.pbtxt") -> None:
    path = repository / "small_encoder" / file
    text = path.read_text()
    assert re.search(old, text)
    path.write_text(re.sub(old, new, text))


def test_an_encoder_is_what_its_configuration_says(repository: Path) -> None:
    encoder = read_encoder(repository, "small_encoder")
    assert (encoder.version, encoder.max_batch_size, encoder.buckets) == ("1", 4, (4, 16))
    assert (encoder.inputs, encoder.outputs) == (("input_ids", "attention_mask"), ("sentence_embedding",))
    assert encoder.vector == "sentence_embedding"
    assert encoder.graph().rewritten == 1


def test_a_bucket_that_is_warmed_twice_is_one_bucket(repository: Path) -> None:
    rewrite(repository, r"dims: \[ 4 \]", "dims: [ 16 ]")
    assert read_encoder(repository, "small_encoder").buckets == (16,)


def test_the_variant_for_plans_is_read_where_there_is_one(repository: Path) -> None:
    folder = repository / "small_encoder"
    (folder / "configs").mkdir()
    text = (folder / "config.pbtxt").read_text().replace("max_batch_size: 4", "max_batch_size: 32")
    (folder / "configs" / "plan.pbtxt").write_text(text)
    assert read_encoder(repository, "small_encoder").max_batch_size == 32


def test_the_newest_version_is_built_unless_another_is_named(repository: Path) -> None:
    folder = repository / "small_encoder"
    for version in ("2", "10"):
        (folder / version).mkdir()
        (folder / version / "model.onnx").write_bytes((folder / "1" / "model.onnx").read_bytes())
    assert read_encoder(repository, "small_encoder").version == "10"
    assert read_encoder(repository, "small_encoder", "2").version == "2"
    with pytest.raises(EngineRefused, match="no version 3"):
        read_encoder(repository, "small_encoder", "3")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            r'"input_ids" data_type: TYPE_INT64 dims: \[ -1 \]',
            '"pixels" data_type: TYPE_FP32 dims: [ 3, 9 ]',
            "no encoder",
        ),
        (r"dims: \[ 8 \]", "dims: [ -1, 8 ]", "no encoder of texts.*gives sentence_embedding FP32 \\[-1, 8\\]"),
        (r"dims: \[ 8 \]", "dims: [ 1 ]", "no encoder"),
        (r"max_batch_size: 4", "max_batch_size: 0", "takes no batches"),
        (r"(?s)model_warmup.*", "", "warms no bucket"),
        (r'("input_ids" value \{ data_type: TYPE_INT64 dims: \[) 16', r"\1 17", "does not say one length"),
        (
            r"kind: KIND_GPU",
            'kind: KIND_GPU profile: [ "0" ]',
            "warms 2 buckets .* names the profiles 0: they must be 0, 1",
        ),
        (r"input \[", "input ] [", "is no configuration"),
    ],
)
def test_what_cannot_be_built_is_refused_by_its_reason(repository: Path, old: str, new: str, why: str) -> None:
    rewrite(repository, old, new)
    with pytest.raises(EngineRefused, match=why):
        read_encoder(repository, "small_encoder")


def test_a_model_or_a_graph_that_is_not_there_is_named(repository: Path) -> None:
    with pytest.raises(EngineRefused, match="holds no model nobody"):
        read_encoder(repository, "nobody")
    (repository / "small_encoder" / "1" / "model.onnx").unlink()
    with pytest.raises(EngineRefused, match=r"1/model\.onnx is not there: run `zooserve fetch`"):
        read_encoder(repository, "small_encoder")


def test_a_graph_that_is_not_the_configuration_s_is_refused(
    repository: Path, model_bytes: Callable[..., bytes]
) -> None:
    rewrite(repository, "sentence_embedding", "vector")
    with pytest.raises(EngineRefused, match="has the outputs vector, its graph sentence_embedding, token_embeddings"):
        read_encoder(repository, "small_encoder").graph()


def test_a_graph_of_foreign_operators_is_refused_by_their_names(
    repository: Path, model_bytes: Callable[..., bytes]
) -> None:
    (repository / "small_encoder" / "1" / "model.onnx").write_bytes(model_bytes(operation="MatMulNBits"))
    with pytest.raises(EngineRefused, match=r"uses com\.microsoft\.MatMulNBits, which TensorRT does not read"):
        read_encoder(repository, "small_encoder").graph()


def test_a_damaged_graph_is_refused(repository: Path) -> None:
    path = repository / "small_encoder" / "1" / "model.onnx"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(EngineRefused, match="is no ONNX model: it is cut off"):
        read_encoder(repository, "small_encoder").graph()


@pytest.mark.parametrize(
    ("model", "tokenizers"),
    [
        ("embed_encoder", {"embed": "embed_tokenizer", "rag_query": "rag_query_tokenizer"}),
        ("embed_bulk_encoder", {"embed_bulk": "embed_bulk_tokenizer"}),
    ],
)
def test_the_zoo_s_ensembles_say_who_feeds_an_encoder(model: str, tokenizers: dict[str, str]) -> None:
    found = {feed.ensemble: feed.tokenizer.name for feed in feeds_of(ZOO, model)}
    assert tokenizers.items() <= found.items()
