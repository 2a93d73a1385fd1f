"""`python -m zooserve_observability.rules [--check] [FOLDER]`: write the rules, or say which file is not up to date."""

import argparse
import sys
from pathlib import Path

from zooserve_observability.rules.written import files

_FOLDER = Path("observability/prometheus/rules")


def main() -> None:
    """Write what is missing or differs; with `--check`, only say so and exit with 1."""
    parser = argparse.ArgumentParser(prog="python -m zooserve_observability.rules", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("folder", nargs="?", type=Path, default=_FOLDER)
    asked = parser.parse_args()
    wanted = {asked.folder / name: text for name, text in files().items()}
    stale = [file for file, text in wanted.items() if not file.exists() or file.read_text() != text]
    stray = sorted(set(asked.folder.glob("*.yml")) - set(wanted))
    if asked.check and stale + stray:
        names = ", ".join(str(file) for file in stale + stray)
        sys.exit(f"Not as the rules in zooserve_observability/rules say: {names}. Run `make rules`.")
    asked.folder.mkdir(parents=True, exist_ok=True)
    for file in stale:
        file.write_text(wanted[file])
    for file in stray:
        file.unlink()


if __name__ == "__main__":
    main()
