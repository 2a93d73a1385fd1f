import base64
import json
from pathlib import Path

import numpy as np
import pytest

from zooserve_ensembles.graphs.injection_head import HEAD, build


def test_the_graph_is_the_logistic_function_of_the_weighted_sum(tmp_path: Path, run_graph) -> None:
    rng = np.random.default_rng(0)
    head = {"weights": rng.normal(size=16).tolist(), "bias": -0.5}
    file = tmp_path / "injection.json"
    file.write_text(json.dumps(head))
    vectors = rng.normal(size=(9, 16)).astype(np.float32)
    outputs = run_graph(build({"injection.json": file}), sentence_embedding=vectors)
    expected = 1 / (1 + np.exp(-(vectors @ np.array(head["weights"]) + head["bias"])))
    np.testing.assert_allclose(outputs["injection_probability"], expected[:, None], atol=1e-6)
    assert np.array_equal(outputs["embedding"], vectors), "what goes in comes out again, for callers of an ensemble"


def test_the_committed_head_says_what_it_was_trained_on_and_how_good_it_is() -> None:
    head = json.loads(HEAD.read_text("utf-8"))
    assert len(head["weights"]) == 384
    assert len(head["data"]["sha256"]) == 64
    for name in ("s_labs_test", "neuralchemy_test"):
        assert head["quality"][name]["f1"] > 0.93, name
        assert head["quality"][name]["auc"] > 0.98, name
        assert head["quality"][name]["false_positive_rate"] < 0.05, name


def test_the_placed_head_gives_the_golden_verdicts(placed, golden, run_graph) -> None:
    encoder, tokenizer = placed("zoo/embed_encoder/1/model.onnx"), placed("zoo/embed_tokenizer/1/tokenizer.json")
    head = placed("zoo/injection_head/1/model.onnx")
    from tokenizers import Tokenizer

    tokens = Tokenizer.from_file(str(tokenizer))
    tokens.enable_truncation(256)
    tokens.no_padding()
    for row in golden("rag_query")["rows"]:
        encoding = tokens.encode(row["text"])
        feed = {"input_ids": np.array([encoding.ids]), "attention_mask": np.array([encoding.attention_mask])}
        vector = run_graph(encoder, **feed)["sentence_embedding"]
        chance = run_graph(head, sentence_embedding=vector)["injection_probability"][0, 0]
        assert chance == pytest.approx(row["injection_probability"], abs=1e-4), row["text"]


def test_the_golden_verdicts_were_made_with_the_committed_head(golden) -> None:
    import hashlib

    assert golden("rag_query")["head_sha256"] == hashlib.sha256(HEAD.read_bytes()).hexdigest()
    assert all(len(base64.b64decode(row["vector"])) == 4 * 384 for row in golden("embed")["rows"])
