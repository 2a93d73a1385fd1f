"""What the language model reads of a text, over an automaton small enough to follow by hand."""

from collections import Counter

import numpy as np
import pytest

from zooserve_ensembles.language import FEATURE_BUCKETS, MAX_BYTES, Automaton, features_of


@pytest.fixture
def automaton() -> Automaton:
    """State 1 after an `a` is feature 5, state 2 after `ab` is feature 7; all other bytes lead to state 0."""
    states = np.zeros((2, 256), np.uint32)
    states[:, ord("a")] = 1
    states[1, ord("b")] = 2
    return Automaton(states, np.array([0, 1, 0], np.uint32), np.array([-1, 5, 7], np.int32))


def test_features_are_counted_as_the_automaton_passes_them(automaton: Automaton) -> None:
    assert automaton.visits(b"ab-aab-b") == Counter({5: 3, 7: 2})


def test_rows_are_padded_to_the_bucket_of_the_richest_with_counts_of_nothing(automaton: Automaton) -> None:
    found = features_of(automaton, ["ab", "x"])
    assert found.features.shape == (2, FEATURE_BUCKETS[0])
    assert found.features[0, :2].tolist() == [5, 7]
    assert found.counts.sum(axis=1).tolist() == [2, 0]


def test_a_text_proves_as_much_as_the_root_of_its_length_and_nothing_without_features(automaton: Automaton) -> None:
    found = features_of(automaton, ["abab", "xxxx", ""])
    assert found.sharpness[:, 0].tolist() == [0.5, 0, 0]
    assert found.sizes[:, 0].tolist() == [4, 4, 0]


def test_capitals_alone_are_read_as_small_letters(automaton: Automaton) -> None:
    assert features_of(automaton, ["ABA"]).counts.sum() == 3
    assert features_of(automaton, ["ABa"]).counts.sum() == 1


def test_letters_and_their_accents_are_composed_first(automaton: Automaton) -> None:
    assert features_of(automaton, ["a\N{COMBINING ACUTE ACCENT}"]).counts.sum() == 0
    assert features_of(automaton, ["a\N{COMBINING ACUTE ACCENT}"]).sizes[0, 0] == 2


@pytest.mark.parametrize(("text", "read"), [("a" * 5000, MAX_BYTES), ("é" * 5000, MAX_BYTES), ("語" * 5000, 1023)])
def test_of_a_long_text_only_whole_characters_of_its_beginning_are_read(
    automaton: Automaton, text: str, read: int
) -> None:
    assert features_of(automaton, [text]).sizes[0, 0] == read


def test_no_text_at_all_is_no_row(automaton: Automaton) -> None:
    assert features_of(automaton, []).features.shape == (0, FEATURE_BUCKETS[0])
