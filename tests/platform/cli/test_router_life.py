"""When a router that runs alone has to be started anew."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from zooserve.processes.records import Record
from zooserve.settings import WatchSettings
from zooserve_cli.router_life import RAY_HEALS_S, RouterLife


@dataclass
class Seen:
    """A router whose state the test decides, and time that it lets pass."""

    parts: list[str] = field(default_factory=list)
    alive: bool = True
    now: float = 0.0

    def missing_parts(self, stock: Iterable[Record]) -> list[str]:
        """Whatever runs."""
        return self.parts


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def life(seen: Seen) -> RouterLife:
    return RouterLife(seen, WatchSettings(patience=3), lambda: seen.alive, lambda: seen.now)  # type: ignore[arg-type]


def faults(life: RouterLife, seen: Seen, seconds: int) -> list[str]:
    """What each look of so many seconds, one a second, finds wrong."""
    found = []
    for _ in range(seconds):
        seen.now += 1
        found.append(life.fault([]))
    return found


def test_while_it_starts_nothing_is_wrong_however_long_it_takes(life: RouterLife, seen: Seen) -> None:
    seen.parts, seen.alive = ["raylet", "haproxy"], False
    assert not any(faults(life, seen, 1000))


def test_a_part_that_is_gone_for_three_looks_is_told(life: RouterLife, seen: Seen) -> None:
    assert not any(faults(life, seen, 10))
    seen.parts = ["raylet"]
    assert faults(life, seen, 3) == ["", "", "its raylet ended"]


def test_a_part_that_is_replaced_is_no_fault(life: RouterLife, seen: Seen) -> None:
    faults(life, seen, 1)
    for _ in range(5):
        seen.parts = ["haproxy"]
        assert not any(faults(life, seen, 2))
        seen.parts = []
        assert not any(faults(life, seen, 1))


def test_silence_counts_once_ray_has_had_its_time(life: RouterLife, seen: Seen) -> None:
    assert not any(faults(life, seen, 10))
    seen.alive = False
    assert not any(faults(life, seen, int(RAY_HEALS_S) - 1))
    assert any("/health/live has not answered for 90 s" in fault for fault in faults(life, seen, 12))


def test_an_answer_ends_a_silence(life: RouterLife, seen: Seen) -> None:
    faults(life, seen, 10)
    for _ in range(3):
        seen.alive = False
        assert not any(faults(life, seen, 60))
        seen.alive = True
        assert not any(faults(life, seen, 10))
