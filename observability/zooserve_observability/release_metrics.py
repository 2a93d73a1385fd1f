"""What is recorded of models with several releases: who is to get how much, who got what, how well it went."""

from typing import Literal

from prometheus_client import CollectorRegistry

from zooserve import errors
from zooserve_observability import vocabulary

__all__ = ["FAILURES", "ReleaseLabels", "ReleaseMetrics", "Role"]

Role = Literal["serving", "canary", "shadow"]
ReleaseLabels = tuple[str, str, str, Role]
"""The model that was asked for; the catalogue entry that ran, its version, and its role."""

FAILURES = tuple(
    error.__name__
    for error in (errors.BackendFailed, errors.BackendUnavailable, errors.DeadlineExceeded, errors.InternalError)
)
"""The outcomes of what failed."""


class ReleaseMetrics:
    """The releases' series, in the registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._share = vocabulary.RELEASE_SHARE.gauge(registry)
        self._requests = vocabulary.RELEASE_REQUESTS.counter(registry)
        self._duration_s = vocabulary.RELEASE_DURATION.histogram(registry)

    def share(self, labels: ReleaseLabels, share: float) -> None:
        """Say which share of the requests a release is to get."""
        self._share.labels(*labels).set(share)

    def known(self, labels: ReleaseLabels) -> None:
        """Have a release's series begin at 0, so that the first failure of one shows."""
        for outcome in ("ok", *FAILURES, *(("skipped",) if labels[-1] == "shadow" else ())):
            self._requests.labels(*labels, outcome)
        self._duration_s.labels(*labels)

    def skipped(self, labels: ReleaseLabels) -> None:
        """Count one request that a shadow was to compute and did not: too many were at it, or it was not ready."""
        self._requests.labels(*labels, "skipped").inc()

    def ended(self, labels: ReleaseLabels, outcome: str, duration_s: float) -> None:
        """Count one request that a release ran."""
        self._requests.labels(*labels, outcome).inc()
        self._duration_s.labels(*labels).observe(duration_s)
