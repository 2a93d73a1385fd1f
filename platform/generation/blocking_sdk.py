"""Write `zooserve.sdk.blocking` from `zooserve.sdk.aio`: python platform/generation/blocking_sdk.py [--check]

unasync takes `async` and `await` out and renames; what prose and docstrings say of them is put right here, and ruff
sorts names and formats. `concurrency` and `connections` are written by hand on both sides. `--check` writes nothing and
fails where a file differs from what would be written, or is none that would be.
"""

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

SDK = Path(__file__).parents[1] / "zooserve" / "sdk"
BY_HAND = frozenset({"__init__.py", "concurrency.py", "connections.py"})
HEADER = "# Generated from ../aio/{name} by `make sdk`: edit it there.\n"
RENAMED = {"aclose": "close", "aclosing": "closing", "anext": "next", "aread": "read", "aio": "blocking"} | {
    f"aiter_{what}": f"iter_{what}" for what in ("bytes", "lines", "raw", "text")
}
PROSE = (
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\basync (with|for|def)\b"), r"\1"),
    (re.compile(r"\b([Aa])n (async|asynchronous) "), r"\1 "),
    (re.compile(r"\basync (?=[a-z])"), ""),
    (re.compile(r"\bto be shared by any number of tasks\b"), "to be shared by any number of threads"),
    (re.compile(r"\bAsync(?=[A-Z])"), ""),
    (re.compile(r"\baclose\b"), "close"),
    (re.compile(r"\(await (\w)"), r"(\1"),
)


def generated(names: dict[str, str]) -> dict[str, str]:
    """The blocking sources, by file name, of these sources of `aio`."""
    renamed = RENAMED | {name: name.removeprefix("Async") for name in _own_names("".join(names.values()))}
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "aio"), Path(folder, "blocking")
        source.mkdir()
        for name, text in names.items():
            (source / name).write_text(text)
        rule = unasync.Rule(f"{source}/", f"{target}/", additional_replacements=renamed)
        unasync.unasync_files([str(source / name) for name in names], [rule])
        for path in target.glob("*.py"):
            path.write_text(HEADER.format(name=path.name) + _put_right(path.read_text()))
        _tidy(target)
        return {path.name: path.read_text() for path in target.glob("*.py")}


def _own_names(text: str) -> set[str]:
    """Our classes and httpx's; those of collections.abc unasync knows."""
    known = {"AsyncIterator", "AsyncIterable", "AsyncGenerator"}
    return set(re.findall(r"\bAsync[A-Z]\w*", text)) - known


def _put_right(text: str) -> str:
    for pattern, plain in PROSE:
        text = pattern.sub(plain, text)
    return text


def _tidy(folder: Path) -> None:
    root = SDK.parents[2]
    # A file that is not there yet is no module of ours to ruff.
    ours = 'lint.isort.known-first-party=["zooserve"]'
    configured = ["--quiet", "--no-cache", "--config", str(root / "pyproject.toml"), "--config", ours]
    for command in (["check", "--fix", "--select", "I,RUF022"], ["format"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, *configured, str(folder)], cwd=root, check=True)


def _sources(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*.py")) if path.name not in BY_HAND}


def _differences(wanted: dict[str, str], found: dict[str, str]) -> list[str]:
    lines = []
    for name in sorted(wanted.keys() | found.keys()):
        before, after = found.get(name, "").splitlines(), wanted.get(name, "").splitlines()
        lines += difflib.unified_diff(before, after, f"blocking/{name}", "as generated", lineterm="", n=1)
    return lines


def main() -> int:
    """The exit status: 1 if `--check` finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    checks = parser.parse_args().check
    wanted, found = generated(_sources(SDK / "aio")), _sources(SDK / "blocking")
    if checks:
        differences = _differences(wanted, found)
        if differences:
            print("\n".join([*differences, "zooserve.sdk.blocking is not as `make sdk` writes it."]))
        return bool(differences)
    for name in found.keys() - wanted.keys():
        (SDK / "blocking" / name).unlink()
    for name, text in wanted.items():
        (SDK / "blocking" / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
