"""A catalogue with releases for platforms of the tests: the committed one, with a canary and a shadow beside it.

`language` shares its requests with `language_next`, version 2 of it on the same Triton model, by request; `rerank` is
shadowed by `rerank_trees`, which is enabled here; and `embed` with `embed_next`, which is in its space, by caller.
Nothing else differs, so that whatever holds of the committed zoo holds of this one.

    python tests/e2e/observability/zoo_with_releases.py zoo-with-releases.yaml
    ZOOSERVE_CATALOGUE=zoo-with-releases.yaml zooserve up
"""

import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

COMMITTED = Path(__file__).parents[3] / "zoo.yaml"
LANGUAGE_SHARE, EMBED_SHARE, SHADOW_SHARE = 0.25, 0.5, 1.0


def write_zoo_with_releases(path: Path) -> Path:
    """Write it there; hand the platform ZOOSERVE_CATALOGUE=path. Enabled are the default models and `rerank_trees`."""
    yaml = YAML(typ="safe", pure=True)
    entries = {entry["name"]: entry for entry in yaml.load(COMMITTED.read_text(encoding="utf-8"))["models"]}
    entries["language_next"] = _next(entries["language"], version=2)
    entries["embed_next"] = _next(entries["embed"], version=2, space="embed")
    entries["language"]["releases"] = {"canary": {"model": "language_next", "share": LANGUAGE_SHARE}}
    entries["embed"]["releases"] = {"canary": {"model": "embed_next", "share": EMBED_SHARE, "by": "caller"}}
    entries["rerank"]["releases"] = {"shadow": {"model": "rerank_trees", "share": SHADOW_SHARE}}
    del entries["rerank_trees"]["optional"]
    with path.open("w", encoding="utf-8") as file:
        yaml.dump({"models": list(entries.values())}, file)
    return path


def _next(entry: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The next release of an entry, on the same Triton models. Aliases and duties stay with the serving one."""
    kept = {name: value for name, value in entry.items() if name not in ("aliases", "required")}
    return {**kept, "name": f"{entry['name']}_next", **fields}


if __name__ == "__main__":
    write_zoo_with_releases(Path(sys.argv[1]))
