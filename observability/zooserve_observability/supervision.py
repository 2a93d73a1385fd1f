"""What the supervisor counts: remedies it had to apply to its servers."""

from prometheus_client import CollectorRegistry, Counter

__all__ = ["SupervisorMetrics"]


class SupervisorMetrics:
    """The supervisor's series, in the registry that is handed in.

    With PROMETHEUS_MULTIPROC_DIR set before prometheus_client is imported, the router's /metrics shows them.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.restarts = Counter(
            "zooserve_server_restarts",
            "Servers that the supervisor started again because they had ended or hung.",
            ("server",),
            registry=registry,
        )
        self.reloads = Counter(
            "zooserve_model_reloads",
            "Triton models that the supervisor loaded again because their stub was sick.",
            ("server", "triton_model"),
            registry=registry,
        )
