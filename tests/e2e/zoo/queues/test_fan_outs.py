"""A full queue beside or behind a fan-out: what Triton 2.51 loses there, and the shapes that are safe."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

BOUND = 2
SLOW_S = 0.3
CALLERS = 16
BOTH = ("left", "right")


def answers_of_idle(pond: Any, *asked: tuple[str, tuple[str, ...]]) -> list[str]:
    """What becomes of requests that have nothing to wait for, sent together."""
    calls = [lambda model=model, outputs=outputs: pond.ask(model, outputs, patience_s=4) for model, outputs in asked]
    return [outcome.kind for outcome in pond.zoo.at_once(calls)]


def test_a_bound_on_the_second_step_of_a_chain_is_harmless_and_so_proves_nothing(
    thrown_away: Callable[..., Any], queue: Any
) -> None:
    def dig(toys: Any) -> None:
        toys.model("first")
        toys.model("bounded", SLOW_S, queue(BOUND))
        toys.ensemble("chain", ["left"], [("first", "x", "middle"), ("bounded", "middle", "left")])

    pond = thrown_away("chain", dig)
    for _ in range(2):
        outcomes = pond.at_once(CALLERS, "chain", ("left",))
        assert set(outcomes) == {"answered", "full"}, outcomes
    assert pond.ask("chain", ("left",)).kind == "answered"


def test_a_bound_behind_a_fan_out_wedges_the_step_before_it_for_good(
    thrown_away: Callable[..., Any], queue: Any
) -> None:
    def dig(toys: Any) -> None:
        toys.model("first")
        toys.model("bounded", SLOW_S, queue(BOUND))
        toys.model("open")
        steps = [("first", "x", "middle"), ("bounded", "middle", "left"), ("open", "middle", "right")]
        toys.ensemble("fan", BOTH, steps)
        toys.ensemble("neighbour", ["right"], [("first", "x", "middle"), ("open", "middle", "right")])

    pond = thrown_away("inner", dig)
    outcomes = pond.at_once(CALLERS, "fan", BOTH)
    assert outcomes["nothing"] > 0, outcomes
    # Not the queue that was full: the step before the fan-out is gone, for every ensemble that shares it.
    assert pond.ask("bounded").kind == "answered"
    assert answers_of_idle(pond, ("first", ("y",)), ("neighbour", ("right",))) == ["nothing", "nothing"]


def test_a_bound_on_one_of_two_first_steps_leaves_requests_without_an_answer(
    thrown_away: Callable[..., Any], queue: Any
) -> None:
    def dig(toys: Any) -> None:
        toys.model("bounded", SLOW_S, queue(BOUND))
        toys.model("open")
        toys.ensemble("entry", BOTH, [("open", "x", "right"), ("bounded", "x", "left")])

    pond = thrown_away("entry", dig)
    outcomes = pond.at_once(CALLERS, "entry", BOTH)
    assert outcomes["nothing"] > 0, outcomes


def test_one_bounded_first_step_whose_output_the_branches_read_refuses_and_lives(
    thrown_away: Callable[..., Any], queue: Any
) -> None:
    """The shape of `rag_query`."""

    def dig(toys: Any) -> None:
        toys.model("bounded", SLOW_S, queue(BOUND))
        toys.model("one")
        toys.model("other", SLOW_S / 3)
        steps = [("bounded", "x", "middle"), ("one", "middle", "left"), ("other", "middle", "right")]
        toys.ensemble("safe", BOTH, steps)
        toys.ensemble("neighbour", ["left"], [("bounded", "x", "middle"), ("one", "middle", "left")])

    pond = thrown_away("safe", dig)
    for _ in range(3):
        outcomes = pond.at_once(CALLERS, "safe", BOTH)
        assert set(outcomes) == {"answered", "full"}, outcomes
    assert pond.ask("safe", BOTH).kind == "answered"
    assert pond.ask("neighbour", ("left",)).kind == "answered"
