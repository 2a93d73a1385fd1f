"""Cutting long lists: nothing lost, nothing moved, no bound passed, nothing taken before it is needed."""

from collections.abc import Iterator
from itertools import count, islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from zooserve.sdk.batches import MAX_ITEMS, MAX_TOKENS, cut, estimated_tokens

SERVERS_ITEMS = 2048
SERVERS_TOKENS = 300_000
SERVERS_BYTES = 8 * 2**20
WORST_EXPANSION = 6
"""Letters that one byte may become in normalisation: U+FDFA, 3 bytes, is 18."""
JSON_EXPANSION = 6
"""Bytes that one may become in JSON: a control character is \\u0001."""

sizes = st.lists(st.integers(0, 40), max_size=200)


@given(sizes, st.integers(1, 12), st.integers(1, 60))
def test_the_parts_are_the_list(items: list[int], max_items: int, max_size: int) -> None:
    parts = list(cut(items, lambda size: size, max_items=max_items, max_size=max_size))
    assert [item for part in parts for item in part.items] == items
    assert [part.first for part in parts] == [
        sum(len(part.items) for part in parts[:place]) for place in range(len(parts))
    ]


@given(sizes, st.integers(1, 12), st.integers(1, 60))
def test_a_part_is_within_its_bounds_or_one_item(items: list[int], max_items: int, max_size: int) -> None:
    for part in cut(items, lambda size: size, max_items=max_items, max_size=max_size):
        assert 1 <= len(part.items) <= max_items
        assert sum(part.items) <= max_size or len(part.items) == 1


@given(sizes, st.integers(1, 12), st.integers(1, 60))
def test_no_part_ends_before_it_must(items: list[int], max_items: int, max_size: int) -> None:
    parts = list(cut(items, lambda size: size, max_items=max_items, max_size=max_size))
    for part, following in pairwise(parts):
        assert len(part.items) == max_items or sum(part.items) + following.items[0] > max_size


@given(st.lists(st.text(min_size=1, max_size=3000), min_size=1, max_size=40))
def test_no_request_is_beyond_the_servers_limits(texts: list[str]) -> None:
    for part in cut(texts, estimated_tokens):
        assert len(part.items) <= SERVERS_ITEMS
        assert len("".join(part.items).encode("utf-8", "surrogatepass")) * JSON_EXPANSION < SERVERS_BYTES


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_is_taken_for_fewer_tokens_than_it_has_bytes(text: str) -> None:
    assert estimated_tokens(text) == len(text.encode()) + 2


def test_the_bounds_hold_for_the_character_that_grows_most() -> None:
    assert MAX_TOKENS * WORST_EXPANSION < SERVERS_TOKENS
    assert MAX_ITEMS <= SERVERS_ITEMS


def test_an_endless_list_is_cut_as_it_is_needed() -> None:
    taken = []

    def texts() -> Iterator[str]:
        for number in count():
            taken.append(number)
            yield "text"

    parts = list(islice(cut(texts(), estimated_tokens), 3))
    assert [len(part.items) for part in parts] == [MAX_ITEMS] * 3
    assert len(taken) == 3 * MAX_ITEMS + 1
