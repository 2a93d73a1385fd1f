"""The committed zoo in a real Triton: its answers against the references."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
from tokenizers import Tokenizer

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
REPOSITORY = ROOT / "model_repository" / "zoo"
QUERY = "How do I list the files that a process has open?"
DOCUMENTS = [
    "lsof lists open files and the processes that opened them.",
    "The weather in the mountains changes quickly in spring.",
    "fuser identifies processes that use given files or sockets, and can end them. " * 6,
    "open",
    "",
]


def golden(name: str) -> list[dict[str, Any]]:
    return list(json.loads((ROOT / "ensembles" / "golden" / f"{name}.json").read_text())["rows"])


def cosines(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
    one, other = one.astype(np.float64), other.astype(np.float64)
    return np.asarray((one * other).sum(1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)))


def in_chunks(ask: Callable[[list[str]], npt.NDArray[Any]], texts: list[str], size: int = 32) -> npt.NDArray[Any]:
    return np.concatenate([ask(texts[start : start + size]) for start in range(0, len(texts), size)])


@pytest.mark.parametrize("model", ["embed", "embed_bulk", "rag_query"])
def test_vectors_are_the_reference_implementation_s(zoo: Any, model: str) -> None:
    rows = golden("embed")
    wanted = np.stack([np.frombuffer(base64.b64decode(row["vector"]), "<f4") for row in rows])
    vectors = in_chunks(lambda texts: zoo.ask(model, texts, ["embedding"])["embedding"], [row["text"] for row in rows])
    assert vectors.shape == wanted.shape
    assert cosines(vectors, wanted).min() >= 0.999
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_a_text_alone_and_in_a_batch_of_32_has_the_same_vector(zoo: Any) -> None:
    texts = [row["text"] for row in golden("embed")][:32]
    texts += [f"{DOCUMENTS[number % 3]} {number}" for number in range(32 - len(texts))]
    together = zoo.ask("embed", texts, ["embedding"])["embedding"]
    alone = np.concatenate([zoo.ask("embed", [text], ["embedding"])["embedding"] for text in texts])
    assert cosines(together, alone).min() >= 0.99999


def test_texts_of_many_clients_at_once_keep_their_own_vectors(zoo: Any) -> None:
    texts = [" ".join(["file"] * (1 + 9 * (number % 8)) + [str(number)]) for number in range(24)]
    alone = np.concatenate([zoo.ask("embed", [text], ["embedding"])["embedding"] for text in texts])
    at_once = zoo.at_once([lambda text=text: zoo.ask("embed", [text], ["embedding"])["embedding"] for text in texts])
    assert cosines(np.concatenate(at_once), alone).min() >= 0.99999


def test_tokens_are_what_the_encoder_read(zoo: Any) -> None:
    texts = ["", "hello world", "word " * 500]
    tokens = zoo.ask("embed", texts, ["tokens"])["tokens"]
    assert tokens.tolist() == [[2], [4], [256]]
    assert tokens.dtype == np.int32


def naive_scores(query: str, documents: list[str]) -> list[float]:
    """Each text encoded by itself, every pair of tokens compared, in float64."""
    tokenizer = Tokenizer.from_file(str(REPOSITORY / "rerank_tokenizer/1/tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.no_padding()
    session = ort.InferenceSession(str(REPOSITORY / "rerank_encoder/1/model.onnx"))

    def encode(text: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        ids = np.array([tokenizer.encode(text).ids], np.int64)
        pooled, tokens = session.run(
            ["sentence_embedding", "token_embeddings"], {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        )
        wide = tokens[0].astype(np.float64)
        return pooled[0].astype(np.float64), wide / np.linalg.norm(wide, axis=1, keepdims=True)

    pooled, words = encode(query)
    scores = []
    for document in documents:
        other, tokens = encode(document)
        scores.append(
            float(pooled @ other) + float(np.mean([max(word @ token for token in tokens) for word in words[1:-1]]))
        )
    return scores


@pytest.mark.parametrize("model", ["rerank", "rerank_bulk"])
def test_rerank_scores_are_cosine_plus_mean_best_token_cosine(zoo: Any, model: str) -> None:
    answer = zoo.ask(model, [QUERY, *DOCUMENTS], ["score", "tokens"])
    np.testing.assert_allclose(answer["score"][1:, 0], naive_scores(QUERY, DOCUMENTS), atol=1e-4)
    assert answer["score"][1:, 0].argmax() == 0
    assert answer["tokens"].shape == (6, 1)


def test_probabilities_of_toxicity_are_the_reference_implementation_s(zoo: Any) -> None:
    rows = golden("classify")
    found = in_chunks(
        lambda texts: zoo.ask("classify", texts, ["probabilities"])["probabilities"], [row["text"] for row in rows]
    )
    np.testing.assert_allclose(found, [row["probabilities"] for row in rows], atol=1e-4)


def test_probabilities_of_injection_are_the_reference_implementation_s(zoo: Any) -> None:
    rows = golden("rag_query")
    found = in_chunks(
        lambda texts: zoo.ask("rag_query", texts, ["injection_probability"])["injection_probability"],
        [row["text"] for row in rows],
    )
    np.testing.assert_allclose(found[:, 0], [row["injection_probability"] for row in rows], atol=1e-3)


@pytest.mark.parametrize(("model", "output"), [("embed", "embedding"), ("rerank", "score")])
def test_bulk_twins_give_the_same_answers(zoo: Any, model: str, output: str) -> None:
    texts = [QUERY, *DOCUMENTS * 3]
    one, other = (zoo.ask(name, texts, [output])[output] for name in (model, f"{model}_bulk"))
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_token_ids_go_to_the_encoder_directly(zoo: Any) -> None:
    ids = {"input_ids": np.array([[101, 7592, 2088, 102]], np.int64), "attention_mask": np.ones((1, 4), np.int64)}
    vector = zoo.infer("embed_encoder", ids, ["sentence_embedding"])["sentence_embedding"]
    assert cosines(vector, zoo.ask("embed", ["hello world"], ["embedding"])["embedding"]).min() >= 0.99999


def test_any_of_an_ensemble_s_outputs_can_be_asked_for_alone(zoo: Any) -> None:
    outputs = ["embedding", "injection_probability", "language_probability", "tokens"]
    together = zoo.ask("rag_query", [QUERY], outputs)
    for name in outputs:
        np.testing.assert_allclose(zoo.ask("rag_query", [QUERY], [name])[name], together[name], atol=1e-6)
