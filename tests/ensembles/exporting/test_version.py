"""Whole exports of tiny random models, against the original libraries."""

import base64
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zooserve.errors import ExportFailed, MissingPart
from zooserve_ensembles.exporting.parity import TEXTS
from zooserve_ensembles.exporting.version import export_version, hide_namespace

GOLDEN = Path(__file__).parents[3] / "ensembles" / "golden" / "embed.json"
WIDTH = 16


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch, once what else the path calls `triton` is out of its way; skips where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: pip install 'zooserve[export]'")
    hide_namespace("triton")
    # Old idioms of third parties, in imports and in the tracer.
    monkeypatch.setattr("warnings.filters", [("ignore", None, Warning, None, 0)])
    import torch

    torch.manual_seed(0)
    return torch


def save_tokenizer(folder: Path) -> None:
    """A word piece tokenizer over the letters of the parity texts, pairs typed 0 and 1 as BERT does."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = sorted({letter for text in TEXTS for letter in text.lower() if not letter.isspace()})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(models.WordPiece({piece: index for index, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, model_input_names=inputs, **special)
    fast.save_pretrained(folder)


def tiny_config(**extra: Any) -> Any:
    from transformers import BertConfig

    return BertConfig(
        vocab_size=400,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.5,
        **extra,
    )


@pytest.fixture
def bi_encoder(torch: Any, tmp_path: Path) -> Callable[..., Path]:
    """Makes a random bi-encoder checkpoint with this pooling, with or without normalisation."""

    def make(pooling: str, *, normalize: bool) -> Path:
        from transformers import BertModel

        folder = tmp_path / "bi"
        BertModel(tiny_config()).save_pretrained(folder)
        save_tokenizer(folder)
        chain = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
        paths = ["", "1_Pooling", "2_Normalize"]
        modules = [
            {"idx": index, "name": str(index), "path": paths[index], "type": f"sentence_transformers.models.{kind}"}
            for index, kind in enumerate(chain)
        ]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 48, "do_lower_case": false}')
        for path in paths[1:]:
            (folder / path).mkdir()
        modes = {f"pooling_mode_{name}": name.startswith(pooling) for name in ("mean_tokens", "cls_token")}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": WIDTH, **modes}))
        return folder

    return make


@pytest.fixture
def cross_encoder(torch: Any, tmp_path: Path) -> Callable[[int], Path]:
    """Makes a random cross-encoder checkpoint with so many labels."""

    def make(labels: int) -> Path:
        from transformers import BertForSequenceClassification

        folder = tmp_path / "cross"
        BertForSequenceClassification(tiny_config(num_labels=labels)).save_pretrained(folder)
        save_tokenizer(folder)
        return folder

    return make


def session(folder: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])


def names(values: Any) -> list[str]:
    return [value.name for value in values]


@pytest.mark.export
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_bi_encoder_keeps_its_answers(bi_encoder, tmp_path: Path, pooling: str, normalize: bool) -> None:
    exported = export_version(str(bi_encoder(pooling, normalize=normalize)), tmp_path / "v" / "1")
    record = json.loads((tmp_path / "v" / "1" / "export.json").read_text())
    assert (record["pooling"], record["normalize"], record["max_tokens"]) == (pooling, normalize, 48)
    assert record["parity"]["max_difference"] < 2e-5
    assert record["parity"]["longest_tokens"] == 48
    assert {"model.safetensors", "1_Pooling/config.json"} <= set(record["files"])
    assert set(record["made_with"]) >= {"torch", "transformers", "sentence-transformers", "onnx"}
    graph = session(exported.folder)
    assert names(graph.get_inputs()) == ["input_ids", "attention_mask"]
    assert names(graph.get_outputs()) == ["sentence_embedding", "token_embeddings"]
    files = ["export.json", "golden.json", "model.onnx", "tokenizer.json"]
    assert sorted(path.name for path in exported.folder.iterdir()) == files
    assert [path.name for path in exported.folder.parent.iterdir()] == ["1"]


@pytest.mark.export
def test_the_original_s_answers_are_kept_for_whoever_serves_the_version(bi_encoder, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    checkpoint = bi_encoder("mean", normalize=True)
    exported = export_version(str(checkpoint), tmp_path / "1")
    golden = json.loads((exported.folder / "golden.json").read_text())
    assert [row["input"] for row in golden["rows"]] == list(TEXTS)
    wanted = SentenceTransformer(str(checkpoint)).encode(list(TEXTS))
    np.testing.assert_allclose([row["answer"] for row in golden["rows"]], wanted, atol=1e-5)
    assert (exported.record["dimensions"], exported.record["pad_id"]) == (WIDTH, 0)


@pytest.mark.export
def test_weights_stored_in_half_precision_are_compared_in_full(bi_encoder, torch, tmp_path: Path) -> None:
    from transformers import BertModel

    checkpoint = bi_encoder("mean", normalize=True)
    BertModel(tiny_config()).to(torch.float16).save_pretrained(checkpoint)
    assert export_version(str(checkpoint), tmp_path / "1").record["parity"]["max_difference"] < 2e-5


@pytest.mark.export
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("length", [1, 3, 48])
def test_batch_and_length_are_free(bi_encoder, tmp_path: Path, rows: int, length: int) -> None:
    folder = export_version(str(bi_encoder("mean", normalize=True)), tmp_path / "1").folder
    ids = np.random.default_rng(0).integers(4, 300, size=(rows, length))
    vectors, tokens = session(folder).run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    assert (vectors.shape, tokens.shape) == ((rows, WIDTH), (rows, length, WIDTH))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.export
@pytest.mark.parametrize(("labels", "output"), [(1, "score"), (3, "probabilities")])
def test_a_cross_encoder_keeps_its_answers(cross_encoder, tmp_path: Path, labels: int, output: str) -> None:
    exported = export_version(str(cross_encoder(labels)), tmp_path / "1")
    assert exported.record["parity"]["max_difference"] < 2e-5
    graph = session(exported.folder)
    assert names(graph.get_inputs()) == ["input_ids", "attention_mask", "token_type_ids"]
    assert names(graph.get_outputs()) == [output]
    ids = np.full((2, 5), 7)
    (answer,) = graph.run(
        None, {name: ids if name == "input_ids" else np.ones_like(ids) for name in names(graph.get_inputs())}
    )
    assert answer.shape == (2, labels)


@pytest.mark.export
def test_an_export_that_differs_too_much_is_refused_and_leaves_nothing(bi_encoder, tmp_path: Path) -> None:
    checkpoint = bi_encoder("mean", normalize=True)
    with pytest.raises(
        ExportFailed, match=r"differs from the original by up to \S+ over 13 texts, the bound is 0e\+00"
    ):
        export_version(str(checkpoint), tmp_path / "v" / "1", max_difference=0.0)
    assert list((tmp_path / "v").iterdir()) == []


@pytest.mark.export
def test_the_reference_checkpoint_gives_the_golden_vectors(torch, tmp_path: Path) -> None:
    checkpoint = os.environ.get("ZOOSERVE_TEST_CHECKPOINT")
    if checkpoint is None:
        pytest.skip("ZOOSERVE_TEST_CHECKPOINT names no folder of all-MiniLM-L6-v2")
    from tokenizers import Tokenizer

    folder = export_version(checkpoint, tmp_path / "1").folder
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.no_padding()
    graph = session(folder)
    for row in json.loads(GOLDEN.read_text("utf-8"))["rows"]:
        encoding = tokenizer.encode(row["text"])
        feed = {"input_ids": np.array([encoding.ids]), "attention_mask": np.array([encoding.attention_mask])}
        vector = graph.run(["sentence_embedding"], feed)[0][0]
        assert vector @ np.frombuffer(base64.b64decode(row["vector"]), dtype="<f4") > 0.999999


def test_a_version_that_exists_is_never_overwritten(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("zooserve_ensembles.exporting.version.require_parts", lambda: None)
    (tmp_path / "model.onnx").write_bytes(b"served")
    with pytest.raises(ExportFailed, match="never overwritten"):
        export_version("anything", tmp_path)
    assert (tmp_path / "model.onnx").read_bytes() == b"served"


def test_without_the_extra_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingPart, match=r"pip install 'zooserve\[export\]'"):
        export_version("anything", tmp_path / "1")


def test_a_folder_on_the_path_is_not_taken_for_a_package_of_its_name(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "looks_like_a_package").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.util.find_spec("looks_like_a_package") is not None
    hide_namespace("looks_like_a_package")
    monkeypatch.setitem(sys.modules, "looks_like_a_package", sys.modules["looks_like_a_package"])
    with pytest.raises(ImportError):
        import looks_like_a_package  # noqa: F401


def test_a_real_package_is_left_alone() -> None:
    before = sys.modules.get("json")
    hide_namespace("json")
    hide_namespace("no_such_package_anywhere")
    assert sys.modules.get("json") is before
    assert "no_such_package_anywhere" not in sys.modules
