"""The chat tokenizer and template, out of the metadata of a GGUF file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zooserve_ensembles.graphs.gguf_metadata import read_metadata

__all__ = ["build", "build_template"]

WANTED = (
    *(f"tokenizer.ggml.{name}" for name in ("model", "pre", "tokens", "token_type", "merges")),
    "tokenizer.chat_template",
)

CONTROL, USER_DEFINED = 3, 4
"""Token types of the GGUF format that are matched whole, before the text is split."""

DIGITS_APART = {"type": "Digits", "individual_digits": True}
GPT2_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def build(inputs: Mapping[str, Path]) -> bytes:
    """tokenizer.json of the one GGUF file among `inputs`: byte-level BPE, digits apart, then GPT-2's split."""
    fields = _metadata(inputs)
    pre = fields["tokenizer.ggml.pre"]
    if fields["tokenizer.ggml.model"] != "gpt2" or pre != "smollm":
        raise ValueError(f"the pre-tokenizer {pre!r} is not known here, only 'smollm'; bring a tokenizer.json along")
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(index, token, special=kind == CONTROL)
            for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind in (CONTROL, USER_DEFINED)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [DIGITS_APART, GPT2_BYTES]},
        "post_processor": None,
        "decoder": GPT2_BYTES,
        "model": _bpe(tokens, fields["tokenizer.ggml.merges"]),
    }
    return json.dumps(document, ensure_ascii=False).encode()


def build_template(inputs: Mapping[str, Path]) -> bytes:
    """The chat template of the one GGUF file among `inputs`."""
    template: str = _metadata(inputs)["tokenizer.chat_template"]
    return template.encode()


def _metadata(inputs: Mapping[str, Path]) -> dict[str, Any]:
    (file,) = inputs.values()
    metadata = read_metadata(file)
    missing = [name for name in WANTED if name not in metadata]
    if missing:
        raise ValueError(f"{file.name} has no {', '.join(missing)}; bring a tokenizer.json and a chat template along")
    return metadata


def _added(index: int, token: str, *, special: bool) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": token, "special": special, **flags}


def _bpe(tokens: list[str], merges: list[str]) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: index for index, token in enumerate(tokens)},
        "merges": merges,
    }
