"""The written encoder against BERT in plain NumPy, in float64, one text at a time and without padding."""

import importlib.util
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zooserve_ensembles.graphs.bert import Shape, Weights, write_encoder
from zooserve_ensembles.graphs.blocks4 import BLOCK, Blocks4
from zooserve_ensembles.graphs.writing import IDS, Graph, floats, int64s

WORDS, POSITIONS, WIDTH, BETWEEN = 60, 24, 64, 96
SHAPE = Shape(layers=2, heads=4)
RNG = np.random.default_rng(0)
Array = npt.NDArray[Any]


def random_array(*sizes: int) -> Array:
    return RNG.normal(0, 0.2, sizes).astype(np.float32)


def layer_names(number: int) -> list[tuple[str, int, int]]:
    prefix = f"encoder.layer.{number}"
    square = [f"attention.self.{part}" for part in ("query", "key", "value")] + ["attention.output.dense"]
    return [
        *((f"{prefix}.{name}", WIDTH, WIDTH) for name in square),
        (f"{prefix}.intermediate.dense", BETWEEN, WIDTH),
        (f"{prefix}.output.dense", WIDTH, BETWEEN),
    ]


def random_weights() -> dict[str, Array]:
    weights = {
        "embeddings.word_embeddings.weight": random_array(WORDS, WIDTH),
        "embeddings.position_embeddings.weight": random_array(POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": random_array(2, WIDTH),
    }
    norms = ["embeddings.LayerNorm"]
    for number in range(SHAPE.layers):
        norms += [f"encoder.layer.{number}.{name}.LayerNorm" for name in ("attention.output", "output")]
        for name, rows, columns in layer_names(number):
            weights |= {f"{name}.weight": random_array(rows, columns), f"{name}.bias": random_array(rows)}
    for name in norms:
        weights |= {f"{name}.weight": 1 + random_array(WIDTH), f"{name}.bias": random_array(WIDTH)}
    return weights


WEIGHTS = random_weights()


def session(weights: Weights, *, token_types: bool = False) -> onnxruntime.InferenceSession:
    graph = Graph("encoder")
    hidden = write_encoder(graph, weights, SHAPE, token_types=token_types)
    inputs = ["input_ids", "attention_mask", *["token_type_ids"] * token_types]
    content = graph.serialized(int64s(dict.fromkeys(inputs, IDS)), floats({hidden: [*IDS, WIDTH]}))
    return onnxruntime.InferenceSession(content)


PLAIN, TYPED = session(WEIGHTS), session(WEIGHTS, token_types=True)


def by_hand(weights: dict[str, Array], ids: list[int], types: list[int]) -> Array:
    wide = {name: array.astype(np.float64) for name, array in weights.items()}

    def dense(name: str, given: Array) -> Array:
        return given @ wide[f"{name}.weight"].T + wide[f"{name}.bias"]

    def norm(name: str, given: Array) -> Array:
        centred = given - given.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + SHAPE.epsilon)
        return scaled * wide[f"{name}.weight"] + wide[f"{name}.bias"]

    def heads(name: str, given: Array) -> Array:
        return dense(name, given).reshape(len(given), SHAPE.heads, -1).swapaxes(0, 1)

    def gelu(given: Array) -> Array:
        return given / 2 * (1 + np.vectorize(math.erf)(given / math.sqrt(2)))

    hidden = wide["embeddings.word_embeddings.weight"][ids] + wide["embeddings.token_type_embeddings.weight"][types]
    hidden = norm("embeddings.LayerNorm", hidden + wide["embeddings.position_embeddings.weight"][: len(ids)])
    for number in range(SHAPE.layers):
        name = f"encoder.layer.{number}"
        query, key, value = (heads(f"{name}.attention.self.{part}", hidden) for part in ("query", "key", "value"))
        weight = np.exp(query @ key.swapaxes(1, 2) / math.sqrt(query.shape[-1]))
        mixed = (weight / weight.sum(-1, keepdims=True) @ value).swapaxes(0, 1).reshape(hidden.shape)
        hidden = norm(f"{name}.attention.output.LayerNorm", hidden + dense(f"{name}.attention.output.dense", mixed))
        between = gelu(dense(f"{name}.intermediate.dense", hidden))
        hidden = norm(f"{name}.output.LayerNorm", hidden + dense(f"{name}.output.dense", between))
    return hidden


texts = st.lists(
    st.lists(st.tuples(st.integers(0, WORDS - 1), st.integers(0, 1)), min_size=1, max_size=POSITIONS),
    min_size=1,
    max_size=4,
)


@given(texts)
@settings(max_examples=40, deadline=None)
def test_every_text_of_a_padded_batch_is_encoded_as_by_hand(batch: list[list[tuple[int, int]]]) -> None:
    length = max(map(len, batch))
    ids, mask, types = (np.zeros((len(batch), length), np.int64) for _ in range(3))
    for row, text in enumerate(batch):
        ids[row, : len(text)], types[row, : len(text)] = np.transpose(text)
        mask[row, : len(text)] = 1
    (typed,) = TYPED.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": types})
    (plain,) = PLAIN.run(None, {"input_ids": ids, "attention_mask": mask})
    for row, text in enumerate(batch):
        words, kinds = map(list, zip(*text, strict=True))
        np.testing.assert_allclose(typed[row, : len(text)], by_hand(WEIGHTS, words, kinds), atol=2e-5)
        np.testing.assert_allclose(plain[row, : len(text)], by_hand(WEIGHTS, words, [0] * len(text)), atol=2e-5)


def test_a_row_of_padding_alone_is_finite() -> None:
    nothing = np.zeros((1, 8), np.int64)
    assert np.isfinite(PLAIN.run(None, {"input_ids": nothing, "attention_mask": nothing})[0]).all()


def test_more_tokens_than_positions_are_refused() -> None:
    ids = np.ones((1, POSITIONS + 1), np.int64)
    with pytest.raises(Exception, match="Add"):
        PLAIN.run(None, {"input_ids": ids, "attention_mask": ids})


def q4_0(digits: Array, scales: Array) -> bytes:
    """GGML's own layout: half floats, then 16 bytes of which byte i holds columns i and i + 16 of the block."""
    blocks = digits.reshape(*scales.shape, BLOCK)
    low, high = blocks[..., : BLOCK // 2], blocks[..., BLOCK // 2 :]
    return np.concatenate([scales[..., None].view(np.uint8), low | high << 4], axis=-1).tobytes()


def random_blocks(rows: int, columns: int) -> tuple[Blocks4, Array]:
    """A 4-bit matrix, and its values by the definition of the format."""
    digits = RNG.integers(0, 16, (rows, columns)).astype(np.uint8)
    scales = RNG.normal(0, 0.05, (rows, columns // BLOCK)).astype(np.float16)
    values = (digits.astype(np.float32) - 8) * np.repeat(scales, BLOCK, axis=1).astype(np.float32)
    return Blocks4.from_q4_0(q4_0(digits, scales), rows, columns), values


def test_four_bit_weights_lose_nothing() -> None:
    blocks, values = random_blocks(10, 64)
    np.testing.assert_array_equal(blocks.values(), values)


def test_a_four_bit_encoder_is_the_encoder_of_its_values() -> None:
    matrices = [("embeddings.word_embeddings", WORDS, WIDTH)]
    matrices += [entry for number in range(SHAPE.layers) for entry in layer_names(number)]
    made = {f"{name}.weight": random_blocks(rows, columns) for name, rows, columns in matrices}
    packed = session({**WEIGHTS, **{name: blocks for name, (blocks, _) in made.items()}})
    unpacked = session({**WEIGHTS, **{name: values for name, (_, values) in made.items()}})
    ids = RNG.integers(0, WORDS, (3, 12))
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    np.testing.assert_allclose(packed.run(None, feed)[0], unpacked.run(None, feed)[0], atol=1e-5)


@pytest.mark.export
def test_it_is_the_encoder_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: pip install 'zooserve[export]'")
    monkeypatch.setattr("warnings.filters", [("ignore", None, Warning, None, 0)])
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_hidden_layers=SHAPE.layers,
        num_attention_heads=SHAPE.heads,
        intermediate_size=BETWEEN,
        max_position_embeddings=POSITIONS,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    written = session({name: tensor.numpy() for name, tensor in model.state_dict().items()}, token_types=True)
    ids = RNG.integers(0, WORDS, (3, 12))
    types, mask = (ids > WORDS // 2).astype(np.int64), np.tri(3, 12, 9, dtype=np.int64)
    feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    with torch.no_grad():
        wanted = model(**{name: torch.tensor(array) for name, array in feed.items()}).last_hidden_state.numpy()
    keep = mask.astype(bool)
    np.testing.assert_allclose(written.run(None, feed)[0][keep], wanted[keep], atol=1e-5)
