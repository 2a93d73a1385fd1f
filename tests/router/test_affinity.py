"""Which leaf a generation goes to: pure choices, counted over many keys."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zooserve_router.affinity import (
    LOAD_FACTOR,
    WINDOW_CHARACTERS,
    affinity_key,
    chosen_leaf,
    estimated_tokens,
    ranked,
)
from zooserve_router.chat.generation import Generation, Sampling

LEAVES = [f"leaf-{number}:8001" for number in range(5)]
KEYS = [f"conversation {number}" for number in range(4000)]


def test_a_conversations_next_turn_and_a_shared_system_prompt_have_one_key() -> None:
    system = "You are helpful. " * 40
    first = Generation(f"{system}<user>Hi")
    second = Generation(f"{system}<user>Hi<assistant>Hello!<user>And then?")
    other = Generation(f"{system}<user>Something else")
    assert len(system) > WINDOW_CHARACTERS
    assert affinity_key(first) == affinity_key(second) == affinity_key(other)


def test_prompts_that_begin_otherwise_have_other_keys() -> None:
    assert affinity_key(Generation("a" * 600)) != affinity_key(Generation("b" + "a" * 600))


def test_a_callers_cache_key_counts_instead_of_the_prompt() -> None:
    mine = [Generation(text, cache_key="session-7") for text in ("one", "two")]
    assert affinity_key(mine[0]) == affinity_key(mine[1]) != affinity_key(Generation("one"))
    assert affinity_key(Generation("session-7")) != affinity_key(mine[0])


def test_two_adapters_share_no_cache_and_no_key() -> None:
    assert affinity_key(Generation("one", lora="a")) != affinity_key(Generation("one", lora="b"))


def test_keys_spread_evenly_over_the_leaves() -> None:
    counts = Counter(ranked(key, LEAVES)[0] for key in KEYS)
    assert set(counts) == set(LEAVES)
    assert max(counts.values()) < 1.15 * len(KEYS) / len(LEAVES)


def test_the_order_of_the_list_of_leaves_does_not_matter() -> None:
    assert all(ranked(key, LEAVES) == ranked(key, LEAVES[::-1]) for key in KEYS[:50])


def test_a_leaf_that_leaves_moves_its_own_keys_alone_and_each_to_its_second_choice() -> None:
    gone, rest = LEAVES[2], [leaf for leaf in LEAVES if leaf != LEAVES[2]]
    for key in KEYS:
        before, after = ranked(key, LEAVES), ranked(key, rest)
        assert after[0] == (before[1] if before[0] == gone else before[0])


def test_the_affine_leaf_is_taken_while_it_is_not_too_busy() -> None:
    assert chosen_leaf(["a", "b"], {"a": 0, "b": 0}, 100, idle_tokens=1000) == "a"
    assert chosen_leaf(["a", "b"], {"a": 800, "b": 0}, 100, idle_tokens=1000) == "a"
    assert chosen_leaf(["a", "b"], {"a": 1000, "b": 0}, 100, idle_tokens=1000) == "b"


def test_without_room_anywhere_the_least_loaded_is_taken() -> None:
    assert chosen_leaf(["a", "b"], {"a": 500, "b": 400}, 10_000) == "b"
    assert chosen_leaf(["a", "b"], {"a": 400, "b": 400}, 10_000) == "a"


@pytest.mark.parametrize("idle_tokens", [0, 3000])
def test_one_hot_prefix_fills_no_leaf_beyond_the_bound(idle_tokens: int) -> None:
    loads = dict.fromkeys(LEAVES, 0)
    for _ in range(200):
        loads[chosen_leaf(ranked("the one system prompt", LEAVES), loads, 100, idle_tokens)] += 100
    mean = sum(loads.values()) / len(loads)
    assert max(loads.values()) <= LOAD_FACTOR * mean + 100
    assert min(loads.values()) > 0


def test_what_a_hot_prefix_spills_goes_to_the_same_second_leaf() -> None:
    order = ranked("hot", LEAVES)
    loads = dict.fromkeys(LEAVES, 0) | {order[0]: 5000}
    assert {chosen_leaf(order, loads, 100, idle_tokens=1000) for _ in range(10)} == {order[1]}


@given(st.dictionaries(st.sampled_from(LEAVES), st.integers(0, 10_000), min_size=1), st.integers(1, 5000), st.text())
def test_some_leaf_is_always_chosen_and_none_beyond_the_bound_while_another_fits(loads, tokens, key) -> None:
    chosen = chosen_leaf(ranked(key, list(loads)), loads, tokens)
    bound = LOAD_FACTOR * (sum(loads.values()) + tokens) / len(loads)
    fitting = [leaf for leaf, load in loads.items() if load + tokens <= bound]
    assert chosen in (fitting or [leaf for leaf in loads if loads[leaf] == min(loads.values())])


def test_a_generation_weighs_its_prompt_and_its_grant() -> None:
    assert estimated_tokens(Generation("abcd" * 10, Sampling(max_tokens=50))) == 60
