import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from zooserve_ensembles.vocabulary import Vocabulary, load_vocabulary

WORDS = Vocabulary(filters="!.,\t\n", lower=True, num_words=100, words={"you": 1, "are": 2, "kind": 3, "rare": 100})


def test_words_are_lowered_and_cut_at_filtered_characters() -> None:
    assert WORDS.ids("You,are\tKIND!") == [1, 2, 3]


def test_unknown_and_too_rare_words_are_left_out() -> None:
    assert WORDS.ids("you xyzzy rare kind") == [1, 3]


def test_short_texts_are_padded_on_the_left() -> None:
    ids, tokens = WORDS.encode(["you are", ""], 4)
    assert ids.tolist() == [[0, 0, 1, 2], [0, 0, 0, 0]]
    assert tokens.tolist() == [[2], [0]]


def test_of_long_texts_the_end_is_kept() -> None:
    ids, tokens = WORDS.encode(["you you are kind"], 2)
    assert ids.tolist() == [[2, 3]]
    assert tokens.tolist() == [[2]]


@given(st.lists(st.text(), max_size=4), st.integers(1, 8))
def test_any_text_gives_rows_of_the_length_that_the_model_reads(texts: list[str], length: int) -> None:
    ids, tokens = WORDS.encode(texts, length)
    assert ids.shape == (len(texts), length)
    assert ((ids > 0).sum(axis=1) == tokens[:, 0]).all()


def test_the_word_list_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "vocabulary.json"
    file.write_text(json.dumps({"filters": "!", "lower": False, "num_words": 9, "words": {"ü": 4}}), encoding="utf-8")
    assert load_vocabulary(file).ids("ü! Ü") == [4]
