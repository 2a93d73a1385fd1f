"""All rules, in the groups in which Prometheus evaluates them: each area's recordings before its alerts."""

from dataclasses import dataclass

from zooserve_observability.rules import burning, chat, releases, requests, servers, telemetry, zoo
from zooserve_observability.rules.rule import Alert, Recording

__all__ = ["ALERTS", "GROUPS", "RECORDINGS", "Group"]


@dataclass(frozen=True)
class Group:
    """Rules that belong together."""

    name: str
    recordings: tuple[Recording, ...]
    alerts: tuple[Alert, ...]


GROUPS = (
    Group("slo", burning.RECORDINGS, burning.ALERTS),
    Group("requests", requests.RECORDINGS, requests.ALERTS),
    Group("zoo", zoo.RECORDINGS, zoo.ALERTS),
    Group("chat", chat.RECORDINGS, chat.ALERTS),
    Group("releases", releases.RECORDINGS, releases.ALERTS),
    Group("servers", servers.RECORDINGS, servers.ALERTS),
    Group("telemetry", telemetry.RECORDINGS, telemetry.ALERTS),
)
RECORDINGS: tuple[Recording, ...] = tuple(recording for group in GROUPS for recording in group.recordings)
ALERTS: tuple[Alert, ...] = tuple(alert for group in GROUPS for alert in group.alerts)
