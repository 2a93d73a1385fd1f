"""What every scaffold has beside its folders: a card, golden answers, and the test that asks for them."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from zooserve_ensembles.folders import Files

__all__ = ["HEADER", "card", "golden", "template", "written_card"]

HEADER = "# Begun by `zooserve new`; yours to edit."


def golden(
    name: str, made_by: str, tolerance: float, rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> Files:
    """The golden answers of a model, each row its inputs and its outputs, and the test that asks a server for them."""
    head = {"model": name, "made_by": made_by, "tolerance": tolerance, "rows": []}
    lines = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("[]\n}")
    rendered = ",\n  ".join(
        json.dumps({"inputs": inputs, "outputs": outputs}, ensure_ascii=False) for inputs, outputs in rows
    )
    return {
        Path(name) / "golden.json": f"{lines}[\n  {rendered}\n ]\n}}\n".encode(),
        Path(name) / "tests" / f"test_{name}.py": template("test_golden.py.txt", name=name),
    }


def card(name: str, summary: str, tensors: str, **more: str) -> Files:
    """The model's card, with the questions that its owner has to answer."""
    rows = "\n".join(f"| {key.replace('_', ' ')} | {value} |" for key, value in more.items())
    return written_card(name, template("card.md.txt", name=name, summary=summary, tensors=tensors, rows=rows))


def written_card(name: str, content: bytes) -> Files:
    """A card as the README of the model's folder, which Triton ignores."""
    return {Path(name) / "README.md": content}


def template(file: str, **values: str) -> bytes:
    """A template of this package, filled in."""
    text = (files("zooserve_ensembles.scaffolding") / "templates" / file).read_text(encoding="utf-8")
    return Template(text).substitute(values).encode()
