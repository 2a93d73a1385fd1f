"""Objectives: how fast their error budgets burn, over the windows of the alerts, and what is left of them."""

from zooserve_observability.dashboards.panels import Dashboard, Panel, Query, Row, Traces
from zooserve_observability.rules.burning import ERRORS, SLOW, SLOW_FIRST_TOKEN, SLOW_TOKENS, Indicator
from zooserve_observability.rules.slo import BURNS, Burn

__all__ = ["DASHBOARD"]

_NAMED = "{{model}} {{class}}"
_MONTH = "30d"
_CHOSEN = ('model=~"$model"', 'class=~"$class"')


def _burn(title: str, indicator: Indicator, burn: Burn, traces: Traces) -> Panel:
    allowed = 1 - indicator.objective
    return Panel(
        f"{title}: burn over {burn.short} and {burn.long}",
        f"1 uses up the budget of 30 days in 30 days. Both windows above {burn.factor:g}: a "
        f"{burn.severity}, as docs/runbook.md says. The short one falls soon after the trouble has ended.",
        "short",
        tuple(
            Query(f"{indicator.ratio(window).where(*_CHOSEN).text} / {allowed:.10g}", f"{_NAMED} {window}")
            for window in (burn.short, burn.long)
        ),
        traces=traces,
        worry_at=burn.factor,
    )


def _left(title: str, indicator: Indicator) -> Panel:
    by_hour = indicator.ratio(BURNS[0].long).where(*_CHOSEN).text
    return Panel(
        f"{title}: budget left",
        "Of 30 days' error budget, or of as much as Prometheus keeps; every hour weighs the same, however busy. "
        "Below 0 the objective is broken.",
        "percentunit",
        (Query(f"1 - avg_over_time({by_hour}[{_MONTH}]) / {1 - indicator.objective:.10g}", _NAMED),),
        look="number",
        least=None,
        most=1,
    )


def _objective(title: str, told: str, indicator: Indicator, traces: Traces) -> Row:
    panels = (*(_burn(title, indicator, burn, traces) for burn in BURNS), _left(title, indicator))
    return Row(f"{title}: {100 * indicator.objective:.4g}% {told}", panels)


DASHBOARD = Dashboard(
    "slo",
    "zooserve: objectives",
    "Burn rates of the error budgets over the alerts' windows, and what is left. The objectives are in rules/slo.py.",
    (
        _objective("Availability", "of the requests that could be answered are", ERRORS, "failed"),
        # One name for all tasks: the recording bears the task.
        _objective("Latency", "of the interactive requests to the zoo are in time", SLOW[0], "slow"),
        _objective("First token", "of the interactive chats begin in time", SLOW_FIRST_TOKEN, "slow"),
        _objective("Token pace", "of the interactive answers come fast enough", SLOW_TOKENS, "slow"),
    ),
)
