"""What the metrics of one embedding cost, in microseconds, written to files as a replica's are.

python benchmarks/recorders.py
"""

import os
import subprocess
import sys
import tempfile
import time

__all__ = ["recorded_us"]

_REQUESTS = 20_000


def recorded_us() -> float:
    """Measured in a process of its own: prometheus_client decides at its import where values are kept."""
    with tempfile.TemporaryDirectory(prefix="zooserve-metrics-") as folder:
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": folder}
        return float(subprocess.check_output([sys.executable, __file__], env=environment, text=True))


def main() -> None:
    from prometheus_client import CollectorRegistry

    from zooserve_observability.metrics import RouterMetrics

    metrics = RouterMetrics(CollectorRegistry())

    def one() -> None:
        with metrics.flying():
            pass
        metrics.ended("embed", "1", "interactive", "ok", 0.01)
        metrics.read_and_wrote("embed", "1", "interactive", 22, 0)

    one()
    began = time.perf_counter()
    for _ in range(_REQUESTS):
        one()
    print(1e6 * (time.perf_counter() - began) / _REQUESTS)


if __name__ == "__main__":
    main()
