"""Every benchmark, those that need a platform against one of their own: started, measured, stopped.

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

from zooserve.processes.ports import reserved_ports

HERE = Path(__file__).parent
# By benchmark: its options for --short.
ALONE: dict[str, list[str]] = {
    "batching.py": ["--short"],
    "ensemble_tax.py": ["--short"],
    "response_cache.py": ["--short"],
}
"""These start Tritons of their own: an idle platform beside them would only take from the cores."""
ON_A_PLATFORM: dict[str, list[str]] = {
    "parity.py": [],
    "router_tax.py": ["--count", "60", "--seconds", "2", "--rounds", "1"],
    "throughput.py": ["--seconds", "3", "--rounds", "1"],
    "slo_classes.py": ["--short"],
    "chat_hangups.py": ["--count", "60"],
}


@contextmanager
def platform() -> Iterator[Mapping[str, str]]:
    """The environment that names a running platform."""
    with tempfile.TemporaryDirectory(prefix="zooserve-bench-") as state:
        environment = {**os.environ, "ZOOSERVE_STATE_DIR": state, "ZOOSERVE_PORT": str(reserved_ports(1)[0])}
        command = [sys.executable, "-m", "zooserve_cli"]
        subprocess.run([*command, "up", "--detach"], env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            yield environment
        finally:
            subprocess.run([*command, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)


def run(benchmarks: Mapping[str, list[str]], environment: Mapping[str, str], *, short: bool) -> list[str]:
    """Run them one after the other; the names of those that failed."""
    failed = []
    for name, options in benchmarks.items():
        print(f"\n## {name}\n", flush=True)
        if subprocess.run([sys.executable, HERE / name, *(options if short else [])], env=environment).returncode:
            failed.append(name)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a few minutes, to see that they work")
    parser.add_argument("--only", choices=[Path(name).stem for name in (*ALONE, *ON_A_PLATFORM)], help="this one alone")
    given = parser.parse_args()
    alone, on_a_platform = (
        {name: options for name, options in group.items() if given.only in (None, Path(name).stem)}
        for group in (ALONE, ON_A_PLATFORM)
    )
    failed = run(alone, os.environ, short=given.short)
    if on_a_platform:
        with platform() as environment:
            failed += run(on_a_platform, environment, short=given.short)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
