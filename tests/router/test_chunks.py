"""How lists are cut into requests to Triton."""

from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zooserve.catalogue import ChunkTokens, load_catalogue
from zooserve.triton.tensors import InferenceAnswer
from zooserve_router.chunks import estimated_tokens, text_chunks, token_chunks
from zooserve_router.dispatch import Job, scattered
from zooserve_router.reranking import ranked, rerank_chunks

CATALOGUE = load_catalogue(Path(__file__).parents[2] / "zoo.yaml")
EMBED = CATALOGUE.resolve("embed")


CLASSES = st.sampled_from(["interactive", "bulk"])


@given(st.lists(st.text(min_size=1, max_size=2000), min_size=1, max_size=120), CLASSES)
def test_every_text_is_in_exactly_one_chunk_and_lengths_rise(texts, slo_class):
    chunks = text_chunks(texts, EMBED, slo_class)
    assert sorted(chain.from_iterable(chunk.places for chunk in chunks)) == list(range(len(texts)))
    assert all(len(chunk.places) <= EMBED.chunk_rows for chunk in chunks)
    lengths = [[len(texts[place]) for place in chunk.places] for chunk in chunks]
    assert all(max(one) <= min(two) for one, two in pairwise(lengths))


def bucket_of(characters: int) -> int:
    return min(size for size in EMBED.buckets if size >= estimated_tokens("x" * characters, 256))


@given(st.lists(st.text(min_size=1, max_size=2000), min_size=1, max_size=120), CLASSES)
def test_no_chunk_has_more_padded_tokens_than_its_class_may_send_at_once(texts, slo_class):
    budget = EMBED.chunk_tokens.of(slo_class)
    for chunk in text_chunks(texts, EMBED, slo_class):
        assert len(chunk.places) * bucket_of(max(len(texts[place]) for place in chunk.places)) <= budget


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=256), min_size=1, max_size=60), CLASSES)
def test_no_chunk_of_token_rows_has_more_than_its_class_may_send_at_once(rows, slo_class):
    for chunk in token_chunks(rows, EMBED, slo_class):
        count, bucket = chunk.inputs[0].shape
        assert count * bucket <= EMBED.chunk_tokens.of(slo_class)


def test_bulk_is_cut_finer_than_interactive():
    texts = ["word " * 180] * 32
    assert [len(chunk.places) for chunk in text_chunks(texts, EMBED, "interactive")] == [16, 16]
    assert [len(chunk.places) for chunk in text_chunks(texts, EMBED, "bulk")] == [8, 8, 8, 8]


def test_a_text_beyond_the_budget_goes_alone():
    narrow = EMBED.model_copy(update={"chunk_tokens": ChunkTokens(bulk=100)})
    chunks = text_chunks(["word " * 180, "short", "word " * 170], narrow, "bulk")
    assert [list(chunk.places) for chunk in chunks] == [[1], [2], [0]]
    assert [chunk.inputs[0].shape for chunk in token_chunks([[1] * 200, [1] * 200], narrow, "bulk")] == [(1, 256)] * 2


def test_the_query_is_a_row_of_every_chunks_budget():
    rerank = CATALOGUE.resolve("rerank")
    chunks = rerank_chunks("a question", ["word " * 180] * 16, rerank, "bulk")
    assert [chunk.inputs[0].shape[0] for chunk in chunks] == [8, 8, 3]
    long_query = rerank_chunks("word " * 180, ["short"] * 16, rerank, "bulk")
    assert [chunk.inputs[0].shape[0] for chunk in long_query] == [8, 8, 3]


@given(st.permutations(range(40)), CLASSES)
def test_rows_come_back_in_the_callers_order_whatever_the_cut(lengths, slo_class):
    texts = ["word " * (length * 5 + 1) for length in lengths]
    chunks = text_chunks(texts, EMBED, slo_class)
    job = Job(EMBED, "embed", slo_class, ("embedding",), chunks)
    assert len(chunks) > 1
    answers = [
        InferenceAnswer("embed", "1", {"embedding": np.array([[len(texts[place])] for place in chunk.places])})
        for chunk in chunks
    ]
    assert scattered(job, answers, "embedding").reshape(-1).tolist() == [len(text) for text in texts]


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=256), min_size=1, max_size=60), CLASSES)
def test_token_rows_share_a_chunk_only_with_rows_of_their_bucket(rows, slo_class):
    for chunk in token_chunks(rows, EMBED, slo_class):
        bucket = chunk.inputs[0].shape[1]
        ids = np.frombuffer(chunk.inputs[0].data, "<i8").reshape(chunk.inputs[0].shape)
        mask = np.frombuffer(chunk.inputs[1].data, "<i8").reshape(chunk.inputs[1].shape)
        for row, place in enumerate(chunk.places):
            length = len(rows[place])
            assert bucket == min(size for size in EMBED.buckets if size >= length)
            assert ids[row, :length].tolist() == rows[place]
            assert mask[row].tolist() == [1] * length + [0] * (bucket - length)


def test_texts_of_one_length_share_a_chunk():
    assert len(text_chunks(["some words"] * 32, EMBED, "interactive")) == 1
    assert len(text_chunks(["some words"] * 33, EMBED, "interactive")) == 2


def test_one_long_text_does_not_make_many_short_ones_long():
    chunks = text_chunks(["short"] * 15 + ["long " * 200], EMBED, "interactive")
    assert [len(chunk.places) for chunk in chunks] == [15, 1]


def test_a_little_padding_is_cheaper_than_another_request():
    assert len(text_chunks(["short", "a little longer than that one, by a few words only"], EMBED, "interactive")) == 1


def test_a_model_without_buckets_is_cut_by_rows_alone():
    classify = CATALOGUE.resolve("classify")
    chunks = text_chunks(["a b " * 20] * 40, classify, "interactive")
    assert [len(chunk.places) for chunk in chunks] == [32, 8]


def test_the_query_counts_in_every_chunk_of_documents():
    rerank = CATALOGUE.resolve("rerank")
    chunks = rerank_chunks("query " * 8, ["document"] * 40, rerank, "interactive")
    query, document = estimated_tokens("query " * 8, 256), estimated_tokens("document", 256)
    assert [chunk.tokens for chunk in chunks] == [query + 31 * document, query + 9 * document]
    assert [chunk.inputs[0].shape for chunk in chunks] == [(32, 1), (10, 1)]


@pytest.mark.parametrize("text", ["", "a", "word " * 1000])
def test_estimates_stay_between_the_frame_and_the_models_limit(text):
    assert 2 <= estimated_tokens(text, 256) <= 256


def test_ranks_go_by_the_raw_score_where_clipping_would_make_ties():
    documents = ranked(np.array([2.1, -0.5, 2.2, -0.1], dtype=np.float32), best_score=2.0)
    assert [document.index for document in documents] == [2, 0, 3, 1]
    assert [document.relevance for document in documents] == [1.0, 1.0, 0.0, 0.0]


def test_a_score_that_is_a_probability_is_the_relevance():
    documents = ranked(np.array([0.25, 0.75], dtype=np.float32), best_score=1.0)
    assert [(document.index, document.relevance) for document in documents] == [(1, 0.75), (0, 0.25)]
