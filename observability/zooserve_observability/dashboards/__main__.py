"""`python -m zooserve_observability.dashboards`: write the dashboards, or with --check say which files differ."""

import argparse
import sys
from pathlib import Path

from zooserve_observability.dashboards.panels import Dashboard

_FOLDER = Path("observability/grafana/dashboards")


def main() -> int:
    """The exit code: 1 where a file differs, 2 where Grafana's types are not installed."""
    parser = argparse.ArgumentParser(prog="zooserve_observability.dashboards", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=_FOLDER, help="where they are (%(default)s)")
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a file is not as generated")
    asked = parser.parse_args()
    try:
        wanted = _files()
    except ModuleNotFoundError as exc:
        return _said(f"{exc.name} is not installed: it comes with the extra `dev` (make check sets it up)\n", 2)
    stale = _stale(asked.folder, wanted)
    if asked.check:
        return _said(
            "".join(f"{path} is not as generated: run `make dashboards`\n" for path in stale), int(bool(stale))
        )
    return _written(asked.folder, wanted, stale)


def _files() -> dict[str, str]:
    # Grafana's types are a tool for building, not a part of what runs.
    from zooserve_observability.dashboards import capacity, chat, grafana, overview, releases, slo, zoo

    every: tuple[Dashboard, ...] = tuple(module.DASHBOARD for module in (overview, chat, zoo, releases, capacity, slo))
    return {dashboard.file_name: grafana.text(dashboard) for dashboard in every}


def _stale(folder: Path, wanted: dict[str, str]) -> list[Path]:
    """Files that are missing, differ, or are nobody's any more."""
    there = {path.name: path.read_text() for path in folder.glob("*.json")}
    return [folder / name for name in sorted(there.keys() | wanted.keys()) if there.get(name) != wanted.get(name)]


def _written(folder: Path, wanted: dict[str, str], stale: list[Path]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for path in stale:
        if path.name in wanted:
            path.write_text(wanted[path.name])
        else:
            path.unlink()
    return 0


def _said(words: str, code: int) -> int:
    sys.stderr.write(words)
    return code


if __name__ == "__main__":
    sys.exit(main())
