"""Counting tokens: exactly, in bounded pieces, and only where it could matter."""

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from zooserve.catalogue import Catalogue, Limits, Model
from zooserve.errors import BackendUnavailable, InputTooLong
from zooserve_router.vocabulary import Vocabulary, known, load_vocabularies, refuse_too_long


def tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "w": 3}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return made


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary(tokenizer())


@pytest.fixture
def model() -> Model:
    return Model(
        name="embed",
        task="embed",
        runs_on="zoo",
        triton={"interactive": "embed"},
        tokenizer="tokenizer.json",
        dimensions=3,
        limits=Limits(max_tokens=10, max_request_tokens=25),
        licence="none",
        source="a test",
    )


class Watched(Vocabulary):
    """Remembers how many characters it was given at once."""

    most = 0
    calls = 0

    def counts(self, texts):
        self.calls += 1
        self.most = max(self.most, sum(map(len, texts)))
        return super().counts(texts)


async def test_texts_that_must_fit_are_not_counted(model):
    watched = Watched(tokenizer())
    await refuse_too_long(watched, model, ["w w w w", "ä"], ["input[0]", "input[1]"])
    assert watched.calls == 0


async def test_texts_that_normalising_lengthens_are_counted_though_they_are_short(model):
    made = tokenizer()
    made.normalizer = normalizers.Replace("x", "w w ")
    with pytest.raises(InputTooLong, match="12 tokens"):
        await refuse_too_long(Vocabulary(made), model, ["xxxxx"], ["input"])


async def test_texts_that_may_not_fit_are(vocabulary, model):
    await refuse_too_long(vocabulary, model, ["w " * 8], ["input"])
    with pytest.raises(InputTooLong, match=r"`input` has 11 tokens and embed reads at most 10"):
        await refuse_too_long(vocabulary, model, ["w " * 9], ["input"])


async def test_all_together_may_not_pass_the_requests_limit(vocabulary, model):
    await refuse_too_long(vocabulary, model, ["w " * 6] * 3, ["input[0]", "input[1]", "input[2]"])
    with pytest.raises(InputTooLong, match="30 tokens together") as refused:
        await refuse_too_long(vocabulary, model, ["w " * 8] * 3, ["input[0]", "input[1]", "input[2]"])
    assert refused.value.param == "input"


async def test_a_huge_text_is_refused_by_its_beginning(model):
    watched = Watched(tokenizer())
    with pytest.raises(InputTooLong, match="more than"):
        await refuse_too_long(watched, model, ["w " * 1_000_000], ["input"])
    assert watched.most <= 65_536


async def test_many_texts_are_counted_in_bounded_pieces(model):
    watched = Watched(tokenizer())
    texts = ["x" * 30_000 for _ in range(10)]
    with pytest.raises(InputTooLong, match="30 tokens together"):
        await refuse_too_long(watched, model, texts, [f"input[{place}]" for place in range(10)])
    assert watched.most <= 65_536


async def test_a_huge_text_of_few_tokens_fits(vocabulary, model):
    await refuse_too_long(vocabulary, model, ["w" + " " * 200_000 + "w"], ["input"])


def test_the_frame_is_added_only_where_it_is_missing(vocabulary):
    assert vocabulary.framed([3]) == [1, 3, 2]
    assert vocabulary.framed([1, 3, 2]) == [1, 3, 2]
    assert vocabulary.framed([1, 3]) == [1, 3, 2]
    assert vocabulary.framed([1]) == [1, 2]


async def test_texts_are_cut_behind_a_token(vocabulary):
    assert await vocabulary.cut(["w w w w", "w", "w " * 50_000], 2) == ["w w", "w", "w w"]


def test_truncation_and_padding_of_the_file_are_switched_off():
    short = tokenizer()
    short.enable_truncation(3)
    short.enable_padding(length=8)
    assert Vocabulary(short).counts(["w w w w"]) == [6]


def test_a_missing_or_broken_file_costs_its_own_model_only(tmp_path, model):
    (tmp_path / "broken.json").write_text("{")
    tokenizer().save(str(tmp_path / "tokenizer.json"))
    missing = model.model_copy(update={"name": "missing", "tokenizer": "nowhere.json"})
    broken = model.model_copy(update={"name": "broken", "tokenizer": "broken.json"})
    loaded = load_vocabularies(Catalogue((missing, broken, model)), tmp_path)
    assert list(loaded) == ["embed"]
    with pytest.raises(BackendUnavailable, match="zooserve fetch"):
        known(loaded, broken)
