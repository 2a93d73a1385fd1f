"""Samples of a retrieval set."""

from collections.abc import Sequence

from evaluation.retrieval_data import Question, RetrievalSet, Split

PASSAGES = [f"passage {place}" for place in range(50)]
SPLITS: Sequence[Split] = ("train", "test")
WHOLE = RetrievalSet(
    "toy",
    {"nothing": "1"},
    PASSAGES,
    [Question(f"question {place}", place, SPLITS[place % 2]) for place in range(20)],
)


def test_a_question_of_a_sample_still_finds_its_answer() -> None:
    found = WHOLE.sampled({"test": 4, "train": 2}, others=5)
    assert [(len(found.of_split(split))) for split in SPLITS] == [2, 4]
    for question in found.questions:
        assert found.passages[question.passage] == question.text.replace("question", "passage")


def test_a_sample_has_the_answers_and_as_many_other_passages_as_asked_for() -> None:
    answers = {f"passage {question.text.split()[1]}" for question in WHOLE.sampled({"test": 4}, 0).questions}
    assert set(WHOLE.sampled({"test": 4}, 0).passages) == answers
    assert len(WHOLE.sampled({"test": 4}, 5).passages) == 9
    assert set(WHOLE.sampled({"test": 4}, 10_000).passages) == set(PASSAGES)


def test_a_sample_does_not_depend_on_the_order_of_the_questions() -> None:
    turned = RetrievalSet(WHOLE.name, WHOLE.made_from, PASSAGES, WHOLE.questions[::-1])
    assert turned.sampled({"test": 3}, 5) == WHOLE.sampled({"test": 3}, 5)
