"""Every benchmark against a platform of its own: started, measured, stopped.

python benchmarks/run.py [--short]
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from zooserve.processes.ports import free_ports

HERE = Path(__file__).parent
SHORT: dict[str, list[str]] = {
    "parity.py": [],
    "router_tax.py": ["--count", "60", "--seconds", "2", "--rounds", "1"],
    "throughput.py": ["--seconds", "3", "--rounds", "1"],
    "slo_classes.py": ["--short"],
    "batching.py": ["--short"],
    "ensemble_tax.py": ["--short"],
    "response_cache.py": ["--short"],
    "backpressure.py": ["--short"],
    "chat_hangups.py": ["--count", "60"],
}


@contextmanager
def platform() -> Iterator[Mapping[str, str]]:
    """The environment that names a running platform."""
    with tempfile.TemporaryDirectory(prefix="zooserve-bench-") as state:
        environment = {**os.environ, "ZOOSERVE_STATE_DIR": state, "ZOOSERVE_PORT": str(free_ports(1)[0])}
        command = [sys.executable, "-m", "zooserve_cli"]
        subprocess.run([*command, "up", "--detach"], env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            yield environment
        finally:
            subprocess.run([*command, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a minute or two, to see that they work")
    parser.add_argument("--only", choices=[Path(name).stem for name in SHORT], help="this one alone")
    given = parser.parse_args()
    failed = []
    with platform() as environment:
        for name, short in SHORT.items():
            if given.only not in (None, Path(name).stem):
                continue
            print(f"\n## {name}\n", flush=True)
            done = subprocess.run([sys.executable, HERE / name, *(short if given.short else [])], env=environment)
            if done.returncode:
                failed.append(name)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
