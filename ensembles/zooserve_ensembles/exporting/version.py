"""One export from a checkpoint to a version folder, with the record of how it was made."""

import importlib.metadata
import importlib.util
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from zooserve.errors import ExportFailed, MissingPart
from zooserve_ensembles.exporting.checkpoint import Checkpoint, locate, read_checkpoint
from zooserve_ensembles.exporting.parity import Parity, measure_parity, save_tokenizer
from zooserve_ensembles.exporting.tracing import OPSET, Traced, trace

__all__ = ["Exported", "export_version"]

PACKAGES = ("torch", "transformers", "sentence-transformers", "tokenizers", "onnx", "onnxruntime")


@dataclass(frozen=True)
class Exported:
    """Where a version went, and its record."""

    folder: Path
    record: dict[str, Any]


def export_version(source: str, to: Path, *, revision: str | None = None, max_difference: float = 1e-4) -> Exported:
    """Export a local or hub checkpoint into the folder `to`, which must not hold anything yet.

    Raises ExportFailed, leaving nothing behind, when it differs from the original by more than `max_difference`.
    """
    require_parts()
    hide_namespace("triton")
    if to.exists() and any(to.iterdir()):
        raise ExportFailed(f"{to} holds a version already, and versions are never overwritten. Name another folder.")
    folder, commit = locate(source, revision)
    checkpoint = read_checkpoint(folder)
    to.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(mkdtemp(dir=to.parent, prefix=f".{to.name}-"))
    try:
        scratch.chmod(0o755)
        record = _fill(scratch, checkpoint, {"source": source, "revision": commit}, max_difference)
        scratch.replace(to)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Exported(to, record)


def require_parts() -> None:
    """Raise MissingPart, naming the extra, when a library that exporting needs is not installed."""
    for module, extra in (
        ("torch", "export"),
        ("transformers", "export"),
        ("sentence_transformers", "export"),
        ("onnx", "export"),
        ("onnxruntime", "platform"),
    ):
        if importlib.util.find_spec(module) is None:
            raise MissingPart(f"Exporting needs {module}, which is not installed: pip install 'zooserve[{extra}]'")


def hide_namespace(name: str) -> None:
    """Make `import name` fail where it would find a mere folder.

    An editable install puts `platform/` on the path, and with it the folder `triton`: torch takes that for the compiler
    of this name and dies with "module 'triton' has no attribute 'language'".
    """
    if name not in sys.modules:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is None:
            sys.modules[name] = None  # type: ignore[assignment]  # the import system's own mark for "not there"


def _fill(folder: Path, checkpoint: Checkpoint, origin: dict[str, Any], bound: float) -> dict[str, Any]:
    names = trace(checkpoint, folder / "model.onnx")
    max_tokens, pad_id = save_tokenizer(checkpoint, folder / "tokenizer.json")
    parity = measure_parity(checkpoint, folder, names, max_tokens)
    if not parity.max_difference <= bound:  # also when it is NaN
        raise ExportFailed(
            f"The graph differs from the original by up to {parity.max_difference:.2e} over {parity.texts} texts, the "
            f"bound is {bound:.0e}. Nothing was placed."
        )
    record = origin | _record(checkpoint, names, parity, max_tokens, pad_id)
    (folder / "golden.json").write_text(_golden(parity), encoding="utf-8")
    (folder / "export.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


def _golden(parity: Parity) -> str:
    """The original's answers, one a line, for tests of whoever serves the version."""
    rows = ",\n  ".join(
        json.dumps({"input": given, "answer": [round(value, 8) for value in answer]}, ensure_ascii=False)
        for given, answer in parity.golden
    )
    made_by = f"sentence-transformers {importlib.metadata.version('sentence-transformers')}"
    return f'{{\n "made_by": {json.dumps(made_by)},\n "rows": [\n  {rows}\n ]\n}}\n'


def _record(checkpoint: Checkpoint, names: Traced, parity: Parity, max_tokens: int, pad_id: int) -> dict[str, Any]:
    return {
        "kind": checkpoint.kind,
        "pooling": checkpoint.pooling,
        "normalize": checkpoint.normalize,
        "max_tokens": max_tokens,
        "pad_id": pad_id,
        "dimensions": len(parity.golden[0][1]),
        "inputs": names.inputs,
        "outputs": names.outputs,
        "opset": OPSET,
        "parity": {
            "max_difference": parity.max_difference,
            "texts": parity.texts,
            "longest_tokens": parity.longest_tokens,
        },
        "made_with": {package: importlib.metadata.version(package) for package in PACKAGES},
        "files": checkpoint.file_hashes(),
    }
