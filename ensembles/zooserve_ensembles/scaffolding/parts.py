"""What every scaffold has: a configuration, a card, golden answers, and the test that asks for them."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from zooserve_ensembles.configuration import Commented, ensemble_config, member_config
from zooserve_ensembles.member import Member
from zooserve_ensembles.pbtxt import comment, pbtxt
from zooserve_ensembles.pipeline import Pipeline
from zooserve_ensembles.scaffolding.placing import Files

__all__ = ["card", "ensemble_folder", "golden", "member_folder", "template", "written_card"]

HEADER = "# Begun by `zooserve new`; yours to edit."


def member_folder(member: Member, version: Mapping[str, bytes]) -> Files:
    """The folder of a model: its configuration, its version 1 and what it is warmed with."""
    folder = Path(member.name)
    samples = {name: content for warmup in member.warmups for name, content in warmup.files.items()}
    return {
        folder / "config.pbtxt": _text(member_config(member)),
        **{folder / "configs" / f"{name}.pbtxt": _text(member_config(it)) for name, it in member.variants.items()},
        **{folder / "1" / name: content for name, content in version.items()},
        **{folder / "warmup" / name: content for name, content in samples.items()},
    }


def ensemble_folder(pipeline: Pipeline) -> Files:
    """The folder of an ensemble, which needs a version folder too."""
    folder = Path(pipeline.name)
    return {folder / "config.pbtxt": _text(ensemble_config(pipeline)), folder / "1" / ".gitkeep": b""}


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


def _text(made: Commented) -> bytes:
    return ("\n".join([HEADER, *comment(made.summary)]) + "\n" + pbtxt(made.config, made.comments)).encode()
