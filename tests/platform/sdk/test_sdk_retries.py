"""Which answers are worth another try, and when."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zooserve.sdk.retries import asks_to_wait_s, pause_s, worth_another

OURS = {"x-request-id": "req_1"}
NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("status", "headers", "again"),
    [
        (429, OURS, True),
        (503, OURS, True),
        (503, {}, True),
        (502, {}, True),
        (502, OURS, False),
        (500, OURS, False),
        (504, OURS, False),
        (504, {}, False),
        (400, OURS, False),
        (409, OURS, False),
        (404, {}, False),
        (409, {"x-should-retry": "true"}, True),
        (429, {"x-should-retry": "false"}, False),
        (503, {"x-should-retry": "perhaps"}, True),
    ],
)
def test_what_may_be_another_answer_the_next_time_is_tried_again(
    status: int, headers: dict[str, str], again: bool
) -> None:
    assert worth_another(status, headers) is again


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": format_datetime(datetime.fromtimestamp(NOW_S + 30, UTC), usegmt=True)}, 30.0),
        ({"retry-after": format_datetime(datetime.fromtimestamp(NOW_S - 30, UTC), usegmt=True)}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "tomorrow"}, None),
        ({}, None),
    ],
)
def test_when_to_come_back_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert asks_to_wait_s(headers, NOW_S) == seconds


@given(st.integers(1, 50), st.floats(0, 1))
def test_pauses_grow_to_a_bound(failures: int, chance: float) -> None:
    longest = min(8.0, 0.25 * 2 ** (failures - 1))
    assert longest / 2 <= pause_s(failures, None, chance) <= longest


@given(st.integers(1, 5), st.floats(0, 1000), st.floats(0, 1))
def test_nobody_comes_back_before_he_may(failures: int, asked_s: float, chance: float) -> None:
    assert asked_s <= pause_s(failures, asked_s, chance) <= max(asked_s * 1.1, 0.1)


@given(st.integers(1, 10_000), st.floats(0, 0.05), st.floats(0, 1))
def test_nobody_comes_back_at_once_nor_all_together(failures: int, asked_s: float, chance: float) -> None:
    """A server, or a proxy, that says 0 every time would be asked by a call of many parts without a pause."""
    assert 0.05 <= pause_s(failures, asked_s, chance) <= 0.1
    assert pause_s(failures, asked_s, 0) < pause_s(failures, asked_s, 1)
