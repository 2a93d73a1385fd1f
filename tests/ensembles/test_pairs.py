import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from zooserve_ensembles.pairs import pair_rows

CLS, SEP = 1, 2
WORDS = {"[UNK]": 0, "[CLS]": CLS, "[SEP]": SEP} | {word: 3 + place for place, word in enumerate("abcdefgh")}


@pytest.fixture
def tokenizer() -> Tokenizer:
    """One id a word, and BERT's frame around one text and around two."""
    made = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    return made


def ids(words: str) -> list[int]:
    return [WORDS[word] for word in words.split()]


def test_the_query_stands_before_each_document(tokenizer: Tokenizer) -> None:
    rows, types = pair_rows(tokenizer, "a b", ["c d e", "f"], 16)
    assert rows == [[CLS, SEP], [CLS, *ids("a b"), SEP, *ids("c d e"), SEP], [CLS, *ids("a b"), SEP, *ids("f"), SEP]]
    assert types == [[0, 0], [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1]]


def test_a_pair_that_is_too_long_loses_the_documents_end(tokenizer: Tokenizer) -> None:
    rows, types = pair_rows(tokenizer, "a b", ["c d e f g h"], 9)
    assert rows[1] == [CLS, *ids("a b"), SEP, *ids("c d e f"), SEP]
    assert len(rows[1]) == len(types[1]) == 9


def test_a_query_beyond_half_the_room_leaves_the_other_half_to_the_document(tokenizer: Tokenizer) -> None:
    rows, _ = pair_rows(tokenizer, "a b c d e f g h", ["h g f e d c b a"], 11)
    assert rows[1] == [CLS, *ids("a b c d"), SEP, *ids("h g f e"), SEP]


def test_a_long_pair_does_not_shorten_the_query_of_the_next(tokenizer: Tokenizer) -> None:
    rows, _ = pair_rows(tokenizer, "a b c", ["d " * 40, "e"], 9)
    assert rows[2] == [CLS, *ids("a b c"), SEP, *ids("e"), SEP]


def test_the_pair_is_what_the_tokenizer_itself_makes_of_two_texts(tokenizer: Tokenizer) -> None:
    rows, types = pair_rows(tokenizer, "a b", ["c d e"], 16)
    whole = tokenizer.encode("a b", "c d e")
    assert (rows[1], types[1]) == (whole.ids, whole.type_ids)


def test_empty_texts_and_no_documents_are_pairs_too(tokenizer: Tokenizer) -> None:
    assert pair_rows(tokenizer, "", [""], 16)[0][1] == [CLS, SEP, SEP]
    assert pair_rows(tokenizer, "a", [], 16) == ([[CLS, SEP]], [[0, 0]])
