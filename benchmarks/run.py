"""Every benchmark, those that need a platform against one of their own: started, measured, stopped.

python benchmarks/run.py [--short] [--only NAME,NAME]
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from ruamel.yaml import YAML

from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings

HERE = Path(__file__).parent
# By benchmark: its options for --short.
ALONE: dict[str, list[str]] = {
    "batching.py": ["--short"],
    "ensemble_tax.py": ["--short"],
    "response_cache.py": ["--short"],
    "leaf_affinity.py": ["--short"],
}
"""These start Tritons of their own: an idle platform beside them would only take from the cores."""
ON_A_PLATFORM: dict[str, list[str]] = {
    "parity.py": [],
    "router_tax.py": ["--count", "60", "--seconds", "2", "--rounds", "1"],
    "throughput.py": ["--seconds", "3", "--rounds", "1"],
    "slo_classes.py": ["--short"],
    "tracing_overhead.py": ["--rounds", "2", "--seconds", "1", "--count", "10", "--chats", "4", "--max-tokens", "4"],
    "chat_hangups.py": ["--count", "60", "--deadlines", "15", "--warm-up", "20"],
    "reembed_kills.py": ["--kills", "2", "--chunks", "150"],
}
ON_A_CHAT_PLATFORM: dict[str, list[str]] = {
    "chat_streaming.py": ["--blocks", "3", "--rounds", "1", "--max-tokens", "4"],
    "chat_slo.py": ["--chats", "24", "--max-tokens", "4", "--first-ms", "60000", "--whole-s", "120"],
    "chat_greedy.py": ["--questions", "4", "--twice", "2", "--max-tokens", "8"],
}
"""These measure engines on all cores: no zoo stands beside them, and each engine has a slot for every client."""
_CHAT_SLOTS = 16


@contextmanager
def platform(**variables: str) -> Iterator[Mapping[str, str]]:
    """The environment that names a running platform."""
    with tempfile.TemporaryDirectory(prefix="zooserve-bench-") as state:
        own = {"ZOOSERVE_STATE_DIR": state, "ZOOSERVE_PORT": str(reserved_ports(1)[0])}
        environment = {**os.environ, **own, **variables}
        command = [sys.executable, "-m", "zooserve_cli"]
        subprocess.run([*command, "up", "--detach"], env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            yield environment
        finally:
            subprocess.run([*command, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def chat_platform() -> Iterator[Mapping[str, str]]:
    """One with the chat models alone: the leaf's, and the engine's with as many slots as the leaf has."""
    with tempfile.TemporaryDirectory(prefix="zooserve-bench-") as folder:
        catalogue = Path(folder) / "zoo.yaml"
        _write_with_slots(Settings().resolved().catalogue, catalogue)
        with platform(
            ZOOSERVE_MODELS="chat,chat_json",
            ZOOSERVE_CATALOGUE=str(catalogue),
            ZOOSERVE_ENGINE__SLOTS=str(_CHAT_SLOTS),
            ZOOSERVE_ENGINE__CONTEXT_PER_SLOT="512",
        ) as environment:
            yield environment


def _write_with_slots(source: Path, target: Path) -> None:
    """The catalogue, with room for as many requests in the engine."""
    yaml = YAML(typ="safe")
    catalogue = yaml.load(source.read_text(encoding="utf-8"))
    for model in catalogue["models"]:
        if model["runs_on"] == "engine":
            model["backend"]["max_in_flight"] = _CHAT_SLOTS
            model["kv_budget_tokens"] = _CHAT_SLOTS * model["limits"]["max_tokens"]
    with target.open("w", encoding="utf-8") as file:
        yaml.dump(catalogue, file)


def run(benchmarks: Mapping[str, list[str]], environment: Mapping[str, str], *, short: bool) -> list[str]:
    """Run them one after the other; the names of those that failed."""
    failed = []
    for name, options in benchmarks.items():
        print(f"\n## {name}\n", flush=True)
        if subprocess.run([sys.executable, HERE / name, *(options if short else [])], env=environment).returncode:
            failed.append(name)
    return failed


_PLACES: tuple[tuple[Mapping[str, list[str]], Callable[[], AbstractContextManager[Mapping[str, str]]]], ...] = (
    (ALONE, lambda: nullcontext(os.environ)),
    (ON_A_PLATFORM, platform),
    (ON_A_CHAT_PLATFORM, chat_platform),
)


def _names(given: str) -> frozenset[str]:
    """The benchmarks of a list. Raises ArgumentTypeError for one that there is not."""
    names = frozenset(filter(None, (name.strip() for name in given.split(","))))
    known = {Path(name).stem for group, _ in _PLACES for name in group}
    if unknown := names - known:
        raise argparse.ArgumentTypeError(
            f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}"
        )
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a few minutes, to see that they work")
    parser.add_argument("--only", type=_names, default=frozenset(), help="these alone, with commas between")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that no platform is left behind
    failed = []
    for group, place in _PLACES:
        wanted = {name: options for name, options in group.items() if not given.only or Path(name).stem in given.only}
        if wanted:
            with place() as environment:
                failed += run(wanted, environment, short=given.short)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
