"""What is kept of answers."""

import sqlite3
from contextlib import closing

import pytest
from rag_app.journal import Journal
from rag_app.rag import Source

SOURCES = [Source(1, "ducks", "Ducks sleep on the pond.", 0.9)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data/journal.db"


def rows(path) -> list:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("select question, useful, comment from answers order by rowid").fetchall()


def test_the_last_word_about_an_answer_counts(path) -> None:
    journal = Journal(path)
    answer = journal.record("Where do ducks sleep?", "On the pond [1].", SOURCES)
    assert rows(path) == [("Where do ducks sleep?", None, None)]
    assert journal.rate(answer, useful=False, comment="Which pond?")
    assert journal.rate(answer, useful=True, comment="")
    assert rows(path) == [("Where do ducks sleep?", 1, "")]


def test_an_answer_that_is_not_there_cannot_be_rated(path) -> None:
    assert not Journal(path).rate("0" * 32, useful=True, comment="")


def test_the_oldest_answers_go_and_the_others_outlive_a_restart(path) -> None:
    journal = Journal(path, most=3)
    for number in range(5):
        journal.record(f"Question {number}?", "No.", SOURCES)
    Journal(path, most=3)
    assert [question for question, *_ in rows(path)] == ["Question 2?", "Question 3?", "Question 4?"]
