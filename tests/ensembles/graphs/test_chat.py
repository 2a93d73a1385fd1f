"""The tokenizer made from a GGUF file against llama.cpp's own, over the same file."""

import json
import os
import random
import struct
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zooserve_ensembles.graphs.chat import build, build_template
from zooserve_ensembles.graphs.gguf_metadata import read_metadata

SCRIPTS = (
    "abc XYZ  \n\t.,'s're",
    "0123456789 ١٢٣ ½²Ⅷ๑",
    "äöüßéñçøłžğ ÀÉ e\u0301",
    "漢字かなカナ한국어 ไทย العربية עברית हिन्दी",
    "😀👍🏽👨‍👩‍👧🇩🇪❤️",
    "()[]{}<>=+-*/%&|^~!?;:\"'`\\@#$_",
    "\u00a0\u2003\u200b\u3000\ufeff \r\n\t\x0b\x0c\x85\u2028",
    "\x00\x01\x07\x1b\x7f\ufffd\U0010ffff\ue000",
)
WRITTEN = (
    " ",
    "  a",
    "a  ",
    "\n\n\n",
    "don't you'll I'VE we'd 'tis",
    "def f(x):\n    return x[0] + 12345 # note\n",
    "3.14159 1,000,000 2024-05-06 v1.2.3a4",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "a<|im_end|>b <|endoftext|> <repo_name>x",
    "<|im_end",
    "a" * 300,
    "1" * 50,
)


def texts() -> Iterator[str]:
    """The written ones, and 400 drawn from one to four scripts each."""
    yield from WRITTEN
    rng = random.Random(0)
    for _ in range(400):
        letters = "".join(rng.sample(SCRIPTS, rng.randint(1, 4)))
        yield "".join(rng.choice(letters) for _ in range(rng.randint(1, 60)))


@pytest.fixture
def llama_ids(placed, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[int]]:
    """llama.cpp's tokenizer, asked over the loopback address that its engine opens."""
    model = placed("leaf/tensorrt_llm/1/model.gguf")
    monkeypatch.setitem(os.environ, "GOMP_SPINCOUNT", "100")
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.n_parallel, parameters.n_ctx = 1, 256
    parameters.ui, parameters.warmup, parameters.verbosity = False, False, 0
    engine = xllamacpp.Server(parameters)

    def ids(text: str) -> list[int]:
        body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
        request = urllib.request.Request(
            f"{engine.listening_address}/tokenize", body, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            tokens: list[int] = json.load(answer)["tokens"]
        return tokens

    return ids


@pytest.fixture
def tokenizer(placed) -> Any:
    """The tokenizer that is built from the placed model, by the code as it is now."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(build({"model.gguf": placed("leaf/tensorrt_llm/1/model.gguf")}).decode())


def test_ids_equal_llama_cpp_over_many_texts(llama_ids, tokenizer) -> None:
    differing = [text for text in texts() if tokenizer.encode(text).ids != llama_ids(text)]
    assert differing == []


def test_decoding_gives_the_text_back(tokenizer) -> None:
    for text in texts():
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def gguf(entries: dict[str, Any]) -> bytes:
    """A GGUF header with these entries: strings, and lists of strings or integers."""

    def string(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def value(item: Any) -> bytes:
        if isinstance(item, str):
            return struct.pack("<I", 8) + string(item)
        kind, packed = (8, map(string, item)) if isinstance(item[0], str) else (5, (struct.pack("<i", x) for x in item))
        return struct.pack("<IIQ", 9, kind, len(item)) + b"".join(packed)

    body = b"".join(string(name) + value(item) for name, item in entries.items())
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + body


SMALL = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["<|end|>", "a", "b", "1", "ab", "Ġ", "11"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b", "1 1"],
    "tokenizer.chat_template": "{{ messages }} ünïcode",
}


def written(folder: Path, entries: dict[str, Any]) -> dict[str, Path]:
    (folder / "m.gguf").write_bytes(gguf(entries))
    return {"m.gguf": folder / "m.gguf"}


def test_special_tokens_are_matched_whole_and_digits_stand_apart(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(build(written(tmp_path, SMALL)).decode())
    assert tokenizer.encode("ab11<|end|>ba").ids == [4, 3, 3, 0, 2, 1]


def test_the_template_is_taken_as_it_stands(tmp_path: Path) -> None:
    assert build_template(written(tmp_path, SMALL)).decode() == "{{ messages }} ünïcode"


def test_another_pre_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'qwen2' is not known here"):
        build(written(tmp_path, SMALL | {"tokenizer.ggml.pre": "qwen2"}))


def test_missing_metadata_is_named(tmp_path: Path) -> None:
    entries = {name: value for name, value in SMALL.items() if name != "tokenizer.ggml.merges"}
    with pytest.raises(ValueError, match=r"m\.gguf has no tokenizer\.ggml\.merges"):
        build(written(tmp_path, entries))


@pytest.mark.parametrize("kept", [0, 3, 4, 20, 60])
def test_a_header_that_is_cut_off_is_refused(tmp_path: Path, kept: int) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf(SMALL)[:kept])
    with pytest.raises(ValueError, match=r"is not a GGUF file|ends too early"):
        read_metadata(tmp_path / "m.gguf")
