"""Budgets: what fits, what is refused, what is given back."""

import pytest

from zooserve.errors import Overloaded
from zooserve_router.admission import Budget


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


def test_a_faster_drain_shortens_the_advice():
    slow, fast = Budget("slow", 100), Budget("fast", 100)
    for budget, amount in ((slow, 10), (fast, 90)):
        budget.take(amount)
        budget.give_back(amount)
        budget.take(100)
    assert fast.retry_after_s(50) < slow.retry_after_s(50) <= 30
