"""The labels of magika's network, whose graph is placed as it ships."""

import json
from collections.abc import Mapping
from pathlib import Path

__all__ = ["build"]


def build(inputs: Mapping[str, Path]) -> bytes:
    """The content types of `config.min.json`, a line each, in the order of the network's output."""
    config = json.loads(inputs["config.min.json"].read_text(encoding="utf-8"))
    return "".join(f"{label}\n" for label in config["target_labels_space"]).encode()
