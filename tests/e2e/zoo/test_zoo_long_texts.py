"""Long texts in the committed zoo: its vectors against the mean of windows as the definition has it."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
from tokenizers import Tokenizer

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).parents[3] / "model_repository" / "zoo"
TEXTS = [
    "A request waits in a queue, and the queue is where most of its time goes. " * 40,
    "\n\n".join(
        f"{number}. Step {number} opens file-{number}.txt, reads {number * 17} lines and closes it."
        for number in range(120)
    ),
    "Straße, crêpe, señor; 東京は日本の首都です。 " * 30,
    "word " * 254,
    "word " * 255,
]


def reference(text: str) -> npt.NDArray[Any]:
    """Each window by itself through ONNX Runtime, in float64."""
    tokenizer = Tokenizer.from_file(str(REPOSITORY / "embed_tokenizer/1/tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    session = ort.InferenceSession(str(REPOSITORY / "embed_encoder/1/model.onnx"))
    tokens = tokenizer.encode(text, add_special_tokens=False).ids
    total = np.zeros(384)
    while tokens:
        window, tokens = tokens[:254], tokens[254:]
        ids = np.array([[101, *window, 102]], np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        total += len(window) * session.run(["sentence_embedding"], feed)[0][0].astype(np.float64)
    return total / np.linalg.norm(total)


@pytest.mark.parametrize("model", ["embed_long", "embed_bulk_long"])
def test_the_vector_of_a_long_text_is_the_mean_of_its_windows(zoo: Any, model: str) -> None:
    found = zoo.ask(model, TEXTS, ["embedding"])["embedding"]
    np.testing.assert_allclose(found, [reference(text) for text in TEXTS], atol=1e-5)


def test_a_text_that_fits_has_the_vector_of_the_ordinary_way(zoo: Any) -> None:
    texts = ["", "hello world", "word " * 254]
    found, ordinary = (zoo.ask(model, texts, ["embedding", "tokens"]) for model in ("embed_long", "embed"))
    np.testing.assert_allclose(found["embedding"], ordinary["embedding"], atol=1e-5)
    assert found["tokens"].tolist() == ordinary["tokens"].tolist()
