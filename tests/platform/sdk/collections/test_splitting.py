"""Texts cut into what a model reads, without its tokenizer."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from zooserve import split
from zooserve.errors import BadInput
from zooserve.sdk import splitting
from zooserve.sdk.splitting import estimated_tokens

ROOT = Path(__file__).parents[4]
TOKENIZER = ROOT / "model_repository/zoo/embed_tokenizer/1/tokenizer.json"


@given(st.text(max_size=300), st.integers(1, 20))
def test_no_chunk_is_estimated_too_long_and_nothing_but_white_space_is_lost(text: str, limit: int) -> None:
    chunks = split(text, limit)
    assert all(estimated_tokens(chunk) <= limit for chunk in chunks)
    assert "".join("".join(chunks).split()) == "".join(text.split())


def test_it_breaks_as_high_up_as_possible() -> None:
    text = "one two\n\nthree four\nfive six. seven eight nine ten\n\neleven"
    assert split(text, 4, lambda part: len(part.split())) == [
        "one two",
        "three four",
        "five six.",
        "seven eight nine ten",
        "eleven",
    ]


@pytest.mark.parametrize("text", ["", " \n\n ", "\n"])
def test_nothing_is_no_chunk(text) -> None:
    assert split(text) == []


@pytest.mark.parametrize("text", [b"bytes", None, 7])
def test_what_is_no_text_is_refused_with_a_hint(text) -> None:
    with pytest.raises(BadInput, match="encoding"):
        split(text)


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(BadInput, match="max_tokens"):
        split("a", 0)


@pytest.mark.skipif(not TOKENIZER.is_file(), reason="run `zooserve fetch`")
def test_what_is_cut_by_the_estimate_is_read_whole_by_the_model() -> None:
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.no_truncation()
    pages = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "platform/zooserve").glob("*.py"))]
    chunks = [chunk for page in pages for chunk in split(page.read_text(encoding="utf-8"))]
    assert len(chunks) > 100
    too_long = [chunk for chunk in chunks if len(tokenizer.encode(chunk).ids) > 256]
    assert too_long == []


@pytest.mark.parametrize("text", ["池" * 40_000, "? " * 40_000, "duck\n" * 20_000], ids=["no space", "words", "lines"])
def test_a_large_text_is_not_counted_again_and_again(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level of a text without breaks would count all of it: 50 MB took minutes."""
    counted = 0
    real = splitting._tokens

    def counting(piece: Any) -> int:
        nonlocal counted
        counted += 1
        return real(piece)

    monkeypatch.setattr(splitting, "_tokens", counting)
    assert len("".join("".join(split(text)).split())) == len("".join(text.split()))
    assert counted < 4 * len(text)
