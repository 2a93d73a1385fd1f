"""An exported graph against the original, over texts of many kinds and lengths, alone and in padded batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zooserve_ensembles.exporting.checkpoint import Checkpoint
from zooserve_ensembles.exporting.original import load_original
from zooserve_ensembles.exporting.tracing import Traced

if TYPE_CHECKING:
    import numpy as np

__all__ = ["TEXTS", "Parity", "measure_parity", "save_tokenizer"]

TEXTS = (
    "a",
    "What is the capital of France?",
    "Paris is the capital and most populous city of France.",
    "The quick brown fox jumps over the lazy dog.",
    "3.14159 and 1,000,000; E = mc^2",
    "def add(a, b):\n    return a + b\n",
    "Straße, crêpe, señor, naïve",
    "東京は日本の首都です。",
    "ok 👍🏽",
    "  spaces   and\ttabs  ",
    "one two three four five six seven eight nine ten " * 3,
    "A request waits in a queue, and the queue is where most of its time goes. " * 8,
    "word " * 700,
)
BATCHES = (1, 4, len(TEXTS))


@dataclass(frozen=True)
class Parity:
    """How far the graph's answers are from the original's."""

    max_difference: float
    texts: int
    longest_tokens: int
    golden: "tuple[tuple[Any, list[float]], ...]" = ()
    """The original's answer to each text or pair."""


def save_tokenizer(checkpoint: Checkpoint, target: Path) -> tuple[int, int]:
    """Write the checkpoint's tokenizer.json to `target`; answers how many tokens it reads, and the id that pads."""
    model = load_original(checkpoint)
    target.write_text(model.tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
    limit: int = model.max_seq_length if checkpoint.kind == "bi-encoder" else model.max_length
    return limit or int(model.tokenizer.model_max_length), int(model.tokenizer.pad_token_id or 0)


def measure_parity(checkpoint: Checkpoint, folder: Path, names: Traced, max_tokens: int) -> Parity:
    """Compare `folder`'s model.onnx, fed by its tokenizer.json, with the original."""
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    expected, pairs = _original(checkpoint)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(max_tokens)
    _pad(tokenizer, checkpoint)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    worst, longest = 0.0, 0
    for rows in BATCHES:
        for start in range(0, len(pairs), rows):
            feed = _feed(tokenizer.encode_batch(pairs[start : start + rows]), names)
            found = session.run([names.outputs[0]], feed)[0]
            difference = np.abs(found.reshape(len(found), -1) - expected[start : start + rows])
            worst, longest = max(worst, float(difference.max())), max(longest, feed["input_ids"].shape[1])
    golden = tuple((text, answer.tolist()) for text, answer in zip(pairs, expected, strict=True))
    return Parity(worst, len(pairs), longest, golden)


def _original(checkpoint: Checkpoint) -> tuple["np.ndarray[Any, Any]", list[Any]]:
    """The original's answers, each text or pair alone, and the texts or pairs."""
    import numpy as np

    model = load_original(checkpoint)
    if checkpoint.kind == "bi-encoder":
        return np.vstack([model.encode([text], show_progress_bar=False) for text in TEXTS]), list(TEXTS)
    pairs = [(query, text) for query, text in zip(TEXTS, (*TEXTS[1:], TEXTS[0]), strict=True)]
    softmax = model.model.config.num_labels > 1
    scores = [model.predict([pair], apply_softmax=softmax, show_progress_bar=False) for pair in pairs]
    return np.vstack([np.asarray(score, dtype=np.float64).reshape(1, -1) for score in scores]), pairs


def _pad(tokenizer: Any, checkpoint: Checkpoint) -> None:
    from transformers import AutoTokenizer

    special = AutoTokenizer.from_pretrained(checkpoint.transformer)
    tokenizer.enable_padding(pad_id=special.pad_token_id, pad_token=special.pad_token)


def _feed(encodings: Sequence[Any], names: Traced) -> dict[str, "np.ndarray[Any, Any]"]:
    import numpy as np

    columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    return {
        name: np.array([getattr(encoding, columns[name]) for encoding in encodings], dtype=np.int64)
        for name in names.inputs
    }
