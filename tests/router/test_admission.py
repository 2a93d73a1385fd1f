"""Budgets: what fits, what is refused, what is given back."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from zooserve.errors import Overloaded
from zooserve.settings import RouterSettings
from zooserve_router.admission import Budget
from zooserve_router.app import _budgets
from zooserve_router.stages import load_ensembles


def test_what_does_not_fit_is_refused_with_a_time():
    budget = Budget("bulk", 100)
    budget.take(80)
    with pytest.raises(Overloaded) as refused:
        budget.take(30)
    assert "bulk" in refused.value.message
    assert refused.value.retry_after_s > 0
    assert budget.taken_tokens == 80


def test_tokens_given_back_in_parts_can_be_taken_again():
    budget = Budget("bulk", 100)
    budget.take(100)
    budget.give_back(30)
    budget.give_back(70)
    budget.take(100)
    assert budget.taken_tokens == 100


def test_a_request_larger_than_the_budget_is_admitted_alone():
    budget = Budget("bulk", 100)
    budget.take(500)
    with pytest.raises(Overloaded):
        budget.take(1)
    budget.give_back(500)
    assert budget.taken_tokens == 0


def test_many_small_requests_are_refused_by_their_number():
    budget = Budget("interactive", 1000, limit_requests=3)
    for _ in range(3):
        budget.take(1)
    with pytest.raises(Overloaded, match="at its limit of 3 requests in flight") as refused:
        budget.take(1)
    assert refused.value.retry_after_s > 0
    budget.give_back(1)
    budget.take(1)
    assert (budget.taken_tokens, budget.taken_requests) == (3, 3)


def test_a_refused_request_takes_nothing():
    budget = Budget("interactive", 10, limit_requests=10)
    budget.take(5, 5)
    for tokens, requests in ((6, 1), (1, 6)):
        with pytest.raises(Overloaded):
            budget.take(tokens, requests)
    assert (budget.taken_tokens, budget.taken_requests) == (5, 5)


def test_the_first_queues_of_the_zoos_ensembles_hold_all_that_may_be_in_flight():
    zoo = Path(__file__).parents[2] / "model_repository" / "zoo"
    first = {ensemble.steps[0].stage.model for ensemble in load_ensembles(zoo).values() if len(ensemble.steps) > 1}
    configs = [(zoo / model / "config.pbtxt").read_text() for model in first]
    bounds = [int(found) for config in configs for found in re.findall(r"max_queue_size: (\d+)", config)]
    assert bounds
    assert RouterSettings().zoo_requests_in_flight < min(bounds)


def test_both_classes_of_all_replicas_together_admit_no_more_requests_than_the_setting_says():
    bounds = RouterSettings(replicas=3)
    admitted = 0
    for budget in _budgets(bounds).values():
        with suppress(Overloaded):
            while True:
                budget.take(1)
        admitted += budget.taken_requests
    assert 0 < admitted * bounds.replicas <= bounds.zoo_requests_in_flight


def test_a_faster_drain_shortens_the_advice():
    slow, fast = Budget("slow", 100), Budget("fast", 100)
    for budget, amount in ((slow, 10), (fast, 90)):
        budget.take(amount)
        budget.give_back(amount)
        budget.take(100)
    assert fast.retry_after_s(50) < slow.retry_after_s(50) <= 30


def test_of_what_there_is_not_enough_is_told():
    budget = Budget("a", 10, 2)
    budget.take(5)
    assert budget.lacks(6) == "tokens"
    assert budget.lacks(1, 2) == "requests"
    assert budget.lacks(6, 2) == "tokens"
