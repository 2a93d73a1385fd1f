"""The demo's corpus, and how it is cut into passages."""

import re

from hypothesis import given
from hypothesis import strategies as st

from zooserve_cli.rag.chunks import cut
from zooserve_cli.rag.corpus import Page, read_corpus


def words(text: str) -> int:
    return len(text.split())


def test_the_corpus_has_hundreds_of_documents_from_topics_and_modules() -> None:
    documents = read_corpus()
    assert len(documents) > 200
    sources = {document.source for document in documents}
    assert {"topic with", "module csv", "module json.decoder"} <= sources
    assert len(sources) == len(documents)
    assert all(document.title and document.text for document in documents)
    assert not [source for source in sources if re.search(r"[ .]_", source)]


def test_a_limit_takes_the_first_documents() -> None:
    assert read_corpus(3) == read_corpus(5)[:3]


def test_underlined_lines_become_headings() -> None:
    page = Page("Page", "here", "before\n\nPart one\n========\n\nfirst\n\nPart two\n--------\nsecond")
    chunks = list(cut([page], 50, words))
    assert [(chunk.heading, chunk.text) for chunk in chunks] == [
        ("Page", "before"),
        ("Part one", "first"),
        ("Part two", "second"),
    ]


def test_small_paragraphs_share_a_passage_and_long_ones_are_broken_at_lines() -> None:
    page = Page("T", "here", "a b\n\nc d\n\ne f g\nh i j\nk l m")
    assert [chunk.text for chunk in cut([page], 7, words)] == ["a b\n\nc d", "e f g\nh i j", "k l m"]


@given(st.text(alphabet="ab \n", max_size=400), st.integers(3, 12))
def test_no_passage_is_too_long_and_no_word_is_lost(text: str, limit: int) -> None:
    chunks = list(cut([Page("T", "here", text)], limit, words))
    assert all(words(chunk.embedded) <= limit for chunk in chunks)
    assert " ".join(chunk.text for chunk in chunks).split() == text.split()


def test_a_word_beyond_the_bound_is_cut_by_characters() -> None:
    chunks = list(cut([Page("T", "here", "x" * 100)], 11, len))
    assert "".join(chunk.text for chunk in chunks) == "x" * 100
    assert all(len(chunk.text) <= 10 for chunk in chunks)
