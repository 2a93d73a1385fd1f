"""What a request's own `timeout` does on Triton 2.51, which the zoo's queue policy is built on."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

RUN_S = 0.4
"""How long the toys take for a request."""


def behind_another(pond: Any, model: str, timeout_us: int | None, outputs: tuple[str, ...] = ("y",)) -> Any:
    """What becomes of a request that waits for one that runs."""
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(pond.ask, model, outputs)
        time.sleep(RUN_S / 4)
        second = pond.ask(model, outputs, timeout_us)
        assert first.result().kind == "answered"
    return second


def test_a_timeout_is_obeyed_where_a_default_stands_and_may_be_overridden(pond: Any) -> None:
    assert behind_another(pond, "obeys", 20_000).kind == "expired"
    assert behind_another(pond, "obeys", 20_000_000).kind == "answered"
    assert behind_another(pond, "obeys", None).kind == "answered"


@pytest.mark.parametrize("model", ["no_default", "no_override"])
def test_a_timeout_is_silently_ignored_without_a_default_or_the_permission(pond: Any, model: str) -> None:
    assert behind_another(pond, model, 20_000).kind == "answered"


def test_a_timeout_shortens_the_default_and_never_lengthens_it(pond: Any) -> None:
    assert behind_another(pond, "short_default", None).kind == "expired"
    assert behind_another(pond, "short_default", 60_000_000).kind == "expired"


def test_a_timeout_passes_through_an_ensemble_to_the_stage_that_is_slow(pond: Any) -> None:
    assert behind_another(pond, "through", 20_000, ("out",)).kind == "expired"


def test_an_expired_request_is_told_only_when_the_batch_before_it_ends(pond: Any) -> None:
    expired = behind_another(pond, "obeys", 20_000)
    assert expired.kind == "expired"
    assert expired.took_s > RUN_S / 2  # of 0.3 s that were left of the run, and not 0.02 s


def test_the_running_request_is_never_cut_short(pond: Any) -> None:
    assert pond.ask("obeys", timeout_us=20_000).kind == "answered"
