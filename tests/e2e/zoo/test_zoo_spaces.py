"""The optional spaces of the committed zoo in a real Triton: int8, many languages, sparse."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
KEPT = 256


def golden(name: str) -> list[dict[str, Any]]:
    return list(json.loads((ROOT / "ensembles" / "golden" / f"{name}.json").read_text())["rows"])


def golden_vectors(rows: Sequence[dict[str, Any]]) -> npt.NDArray[Any]:
    return np.stack([np.frombuffer(base64.b64decode(row["vector"]), "<f4") for row in rows])


def vectors_of(zoo: Any, model: str, texts: Sequence[str]) -> npt.NDArray[Any]:
    parts = [zoo.ask(model, texts[at : at + 16], ["embedding"])["embedding"] for at in range(0, len(texts), 16)]
    return np.concatenate(parts)


def cosines(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.asarray((one.astype(np.float64) * other.astype(np.float64)).sum(axis=1))


def as_weights(indices: npt.NDArray[Any], values: npt.NDArray[Any]) -> dict[int, float]:
    return {int(word): float(weight) for word, weight in zip(indices, values, strict=True) if word >= 0}


def test_int8_vectors_are_near_those_in_floats_and_are_not_them(zoo: Any) -> None:
    rows = golden("embed")
    found = cosines(vectors_of(zoo, "embed_int8", [row["text"] for row in rows]), golden_vectors(rows))
    assert found.min() >= 0.97
    assert found.mean() >= 0.99
    assert found.max() < 0.9999


def test_the_int8_space_is_the_one_that_was_pinned(zoo: Any) -> None:
    rows = golden("embed_int8")
    found = cosines(vectors_of(zoo, "embed_int8", [row["text"] for row in rows]), golden_vectors(rows))
    assert found.min() >= 0.9999


@pytest.mark.parametrize("model", ["embed_int8", "embed_multilingual"])
def test_a_text_alone_and_among_31_others_has_the_same_vector(zoo: Any, model: str) -> None:
    texts = [f"{row['text']} {place}" for place, row in enumerate(golden("embed")[:32])]
    together = zoo.ask(model, texts, ["embedding"])["embedding"]
    alone = np.concatenate([zoo.ask(model, [text], ["embedding"])["embedding"] for text in texts])
    assert cosines(alone, together).min() >= 0.99999


def test_int8_takes_token_ids_as_embed_does(zoo: Any) -> None:
    ids = {"input_ids": np.array([[101, 7592, 2088, 102]], np.int64), "attention_mask": np.ones((1, 4), np.int64)}
    vector = zoo.infer("embed_int8_encoder", ids, ["sentence_embedding"])["sentence_embedding"]
    assert cosines(vector, vectors_of(zoo, "embed_int8", ["hello world"])).min() >= 0.99999


def test_multilingual_vectors_and_tokens_are_those_of_the_engine_that_packed_the_weights(zoo: Any) -> None:
    rows = golden("embed_multilingual")
    texts = [row["text"] for row in rows]
    # The engine rounds activations to 8 bits; this encoder does not.
    assert cosines(vectors_of(zoo, "embed_multilingual", texts), golden_vectors(rows)).min() >= 0.9995
    tokens = zoo.ask("embed_multilingual", texts, ["tokens"])["tokens"]
    assert tokens[:, 0].tolist() == [row["tokens"] for row in rows]


def test_a_query_finds_its_passage_in_another_language(zoo: Any) -> None:
    queries = vectors_of(zoo, "embed_multilingual", ["query: Was ist die Hauptstadt von Frankreich?"])
    texts = ["Berlin is the capital of Germany.", "Paris is the capital of France.", "France exports cheese."]
    passages = vectors_of(zoo, "embed_multilingual", [f"passage: {text}" for text in texts])
    assert (queries @ passages.T).argmax() == 1


def test_multilingual_texts_are_read_up_to_512_tokens(zoo: Any) -> None:
    assert zoo.ask("embed_multilingual", ["a " * 600], ["tokens"])["tokens"].tolist() == [[512]]


def test_sparse_weights_are_the_reference_implementation_s(zoo: Any) -> None:
    rows = golden("embed_sparse")
    answer = zoo.ask("embed_sparse", [row["text"] for row in rows], ["indices", "values", "tokens"])
    assert answer["tokens"][:, 0].tolist() == [row["tokens"] for row in rows]
    for row, indices, values in zip(rows, answer["indices"], answer["values"], strict=True):
        found, wanted = as_weights(indices, values), dict(zip(row["indices"], row["values"], strict=True))
        for word in found.keys() | wanted.keys():
            assert found.get(word, 0) == pytest.approx(wanted.get(word, 0), abs=1e-4)


def test_sparse_rows_have_one_length_heaviest_word_first(zoo: Any) -> None:
    answer = zoo.ask("embed_sparse", ["regular expressions", "a " * 300], ["indices", "values"])
    assert answer["indices"].shape == answer["values"].shape == (2, KEPT)
    assert (np.diff(answer["values"]) <= 0).all()
    np.testing.assert_array_equal(answer["indices"] < 0, answer["values"] == 0)
