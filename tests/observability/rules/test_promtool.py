"""What promtool says of the committed rules, and whether their tests would see a rule that is wrong."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from zooserve_observability.rules.groups import GROUPS
from zooserve_observability.rules.rule import Alert
from zooserve_observability.rules.written import document

AREAS = [group.name for group in GROUPS]
# The tests stand this close to each threshold, on both sides.
CLOSE = 1.15


def moved(alert: Alert, by: float) -> Alert:
    """The alert, harder to reach (above 1) or easier; both windows of a burn have one threshold."""
    first = alert.conditions[0]
    threshold = first.threshold * (by if first.op == ">" else 1 / by)
    return replace(
        alert,
        conditions=tuple(
            replace(each, threshold=threshold) if each.threshold == first.threshold else each
            for each in alert.conditions
        ),
    )


def without(alert: Alert, index: int) -> Alert:
    return replace(alert, conditions=(*alert.conditions[:index], *alert.conditions[index + 1 :]))


@pytest.fixture
def failing(promtool, prometheus, tmp_path):
    """Which alerts of an area fail their tests once every alert was changed."""

    def run(area: str, change) -> set[str]:
        (group,) = [group for group in GROUPS if group.name == area]
        for folder in ("rules", "tests"):
            (tmp_path / folder).mkdir()
        changed = replace(group, alerts=tuple(map(change, group.alerts)))
        (tmp_path / "rules" / f"{area}.yml").write_text(document(changed))
        test = tmp_path / "tests" / f"{area}.test.yml"
        test.write_text((prometheus / "tests" / test.name).read_text())
        told = promtool("test", "rules", test)
        return set(re.findall(r"alertname: (\w+), time", told.stdout + told.stderr))

    return run


def test_prometheus_takes_the_rules(promtool, prometheus: Path) -> None:
    checked = promtool("check", "rules", *sorted((prometheus / "rules").glob("*.yml")))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("area", [*AREAS, "idle"])
def test_the_rules_pass_their_tests(promtool, prometheus: Path, area: str) -> None:
    tested = promtool("test", "rules", prometheus / "tests" / f"{area}.test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("by", [CLOSE, 1 / CLOSE], ids=["higher", "lower"])
@pytest.mark.parametrize("area", AREAS)
def test_a_threshold_that_moves_by_a_seventh_fails_a_test(failing, area: str, by: float) -> None:
    """Not those on whole numbers: nothing lies between them and the next, and the tests stand on both."""
    (group,) = [group for group in GROUPS if group.name == area]
    expected = {alert.name for alert in group.alerts if alert.conditions[0].threshold not in (0, 1, 2)}
    assert expected <= failing(area, lambda alert: moved(alert, by))


@pytest.mark.parametrize("index", [1, 2], ids=["second", "third"])
@pytest.mark.parametrize("area", AREAS)
def test_no_condition_can_be_left_out(failing, area: str, index: int) -> None:
    (group,) = [group for group in GROUPS if group.name == area]
    expected = {alert.name for alert in group.alerts if len(alert.conditions) > index}
    if not expected:
        return
    found = failing(area, lambda alert: without(alert, index) if alert.name in expected else alert)
    assert expected <= found


@pytest.mark.parametrize("minutes", [0, 30], ids=["at once", "much later"])
@pytest.mark.parametrize("area", AREAS)
def test_how_long_conditions_have_to_hold_is_tested(failing, area: str, minutes: int) -> None:
    (group,) = [group for group in GROUPS if group.name == area]
    expected = {alert.name for alert in group.alerts if alert.hold != "0m"}
    assert expected <= failing(area, lambda alert: replace(alert, hold=f"{minutes}m"))
