"""What is recorded of the ways to the backends: second tries, and circuit breakers. Endpoints are the settings' and the
catalogue's."""

from typing import Literal

from prometheus_client import CollectorRegistry

from zooserve_observability import vocabulary

__all__ = ["BreakerState", "EndpointMetrics", "RetryOutcome"]

BreakerState = Literal["closed", "half_open", "open"]
RetryOutcome = Literal["ok", "failed", "denied"]
_VALUES: dict[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}


class EndpointMetrics:
    """The endpoints' series, in the registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._retries = vocabulary.RETRIES.counter(registry)
        self._breaker = vocabulary.BREAKER_STATE.gauge(registry)
        self._opened = vocabulary.BREAKER_OPENED.counter(registry)

    def knows(self, endpoint: str) -> None:
        """Put an endpoint's series there before anything happens to it: a rate sees the first time."""
        for outcome in ("ok", "failed", "denied"):
            self._retries.labels(endpoint, outcome)
        self._opened.labels(endpoint)
        self.breaker(endpoint, "closed")

    def retried(self, endpoint: str, outcome: RetryOutcome) -> None:
        """Count a second try, or one that was not allowed."""
        self._retries.labels(endpoint, outcome).inc()

    def breaker(self, endpoint: str, state: BreakerState) -> None:
        """Say what state an endpoint's circuit breaker is in."""
        self._breaker.labels(endpoint).set(_VALUES[state])

    def breaker_opened(self, endpoint: str) -> None:
        """Count that a circuit breaker opened."""
        self._opened.labels(endpoint).inc()
