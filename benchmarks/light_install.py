"""What `pip install zooserve` brings and costs: megabytes by package, and the time that importing it takes.

A virtual environment is made with what requirements/sdk.lock pins and this checkout's wheel, nothing else. Times are
medians over fresh interpreters, taken in turn: of the clock, and of the CPU, which holds beside other work. Bytecode is
compiled beforehand, as pip does. `--url` asks a running platform for a vector and a chat from there, without numpy.

    python benchmarks/light_install.py [--rounds 20] [--url http://127.0.0.1:8000] [--keep FOLDER]
"""

import argparse
import importlib.metadata
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).parent / "uv"
STEPS = {
    "import httpx": "import httpx",
    "import zooserve": "import zooserve",
    "from zooserve import Zoo": "from zooserve import Zoo",
    "from zooserve import AsyncZoo": "from zooserve import AsyncZoo",
    "… and make a Zoo": "from zooserve import Zoo; Zoo().close()",
}
TIMED = """
import time; clock, cpu = time.perf_counter(), time.process_time()
{statement}
print((time.perf_counter() - clock) * 1000, (time.process_time() - cpu) * 1000)
"""
ASKED = """
import sys
from zooserve import Zoo
with Zoo({url!r}) as zoo:
    vectors = zoo.embed("The light install embeds.")
    answer = zoo.chat("Say hello.", max_tokens=8)
print(vectors.dimensions, "dimensions by", vectors.model, vectors.version, "in", vectors.space)
print(answer.usage.completion_tokens, "tokens by", answer.model, answer.version, "in", answer.request_id)
assert "numpy" not in sys.modules
"""


@contextmanager
def light_environment(keep: Path | None) -> Iterator[Path]:
    """The interpreter of a fresh environment with the base dependencies and the wheel."""
    with tempfile.TemporaryDirectory(prefix="zooserve-light-") as scratch:
        folder = keep or Path(scratch) / "venv"
        wheels = Path(scratch) / "wheels"
        run([sys.executable, "-m", "venv", "--without-pip", folder])
        python = folder / "bin" / "python"
        run([UV, "build", "-q", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", wheels, ROOT])
        install = [UV, "pip", "install", "-q", "--compile-bytecode", "--python", python]
        run([*install, "--require-hashes", "-r", ROOT / "requirements" / "sdk.lock"])
        run([*install, "--no-deps", *wheels.glob("*.whl")])
        yield python


def run(command: list[str | Path], cwd: Path | None = None) -> str:
    """What it prints. Raises CalledProcessError where it fails, its complaint shown."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd).stdout


def megabytes(python: Path) -> dict[str, float]:
    """By package, with its bytecode."""
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    sizes = {}
    for distribution in importlib.metadata.distributions(path=[str(site)]):
        files = {Path(str(file.locate())) for file in distribution.files or ()}
        files |= {cached for file in files if file.suffix == ".py" for cached in bytecode(file)}
        sizes[distribution.name] = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def bytecode(source: Path) -> Iterator[Path]:
    """Of one module."""
    return (source.parent / "__pycache__").glob(f"{source.stem}.cpython-*.pyc")


def import_ms(python: Path, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """By statement: milliseconds of the clock and of the CPU, from fresh interpreters, the statements in turn."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in STEPS}
    with tempfile.TemporaryDirectory() as elsewhere:
        for _ in range(rounds):
            for name, statement in STEPS.items():
                code = TIMED.format(statement=statement)
                clock, cpu = run([python, "-c", code], cwd=Path(elsewhere)).split()
                taken[name].append((float(clock), float(cpu)))
    return taken


def slowest_modules(python: Path, count: int = 10) -> list[tuple[str, float]]:
    """The modules whose own code takes longest when a client is made, in milliseconds."""
    code = STEPS["… and make a Zoo"]
    told = subprocess.run([python, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True).stderr
    rows = re.findall(r"import time: +(\d+) \| +\d+ \| +(\S+)", told)
    return sorted(((name, int(us) / 1000) for us, name in rows), key=lambda row: -row[1])[:count]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--url", help="a running platform")
    parser.add_argument("--keep", type=Path, help="where to leave the environment")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with light_environment(given.keep) as python:
        sizes, times, slowest = megabytes(python), import_ms(python, given.rounds), slowest_modules(python)
        asked = run([python, "-c", ASKED.format(url=given.url)]) if given.url else ""
    medians = {
        name: [statistics.median(column) for column in zip(*taken, strict=True)] for name, taken in times.items()
    }
    if given.json:
        print(json.dumps({"megabytes": sizes, "import_ms": medians, "slowest_modules": dict(slowest)}))
        return
    show(sizes, medians, slowest)
    print(asked, end="")


def show(sizes: Mapping[str, float], medians: Mapping[str, list[float]], slowest: list[tuple[str, float]]) -> None:
    """As tables."""
    print(f"{'MB':>8}  package")
    for name, size in sizes.items():
        print(f"{size:8.2f}  {name}")
    print(f"{sum(sizes.values()):8.2f}  together\n\n{'clock ms':>8} {'CPU ms':>8}  statement")
    for name, (clock, cpu) in medians.items():
        print(f"{clock:8.1f} {cpu:8.1f}  {name}")
    print(f"\n{'ms':>8}  module, by itself, when a Zoo is made")
    for name, ms in slowest:
        print(f"{ms:8.1f}  {name}")


if __name__ == "__main__":
    main()
