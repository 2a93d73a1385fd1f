"""What a checkpoint folder holds: a bi-encoder with its pooling, or a cross-encoder. Read from its JSON files alone."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from zooserve.errors import ExportFailed

__all__ = ["Checkpoint", "Pooling", "locate", "read_checkpoint"]

Pooling = Literal["mean", "cls"]
HASHED = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model")
CHUNK = 1 << 20


@dataclass(frozen=True)
class Checkpoint:
    """A folder with a checkpoint in it, and how its hidden states become an answer."""

    folder: Path
    transformer: Path
    kind: Literal["bi-encoder", "cross-encoder"]
    pooling: Pooling | None = None
    normalize: bool = False

    def file_hashes(self) -> dict[str, str]:
        """SHA-256 of every file that the export depends on, by its path in the folder."""
        files = {file for pattern in HASHED for file in self.folder.rglob(pattern) if file.is_file()}
        return {str(file.relative_to(self.folder)): _hash(file) for file in sorted(files)}


def locate(source: str, revision: str | None = None) -> tuple[Path, str | None]:
    """The folder of a local path or a hub name, and the hub's commit where it is one."""
    if Path(source).expanduser().is_dir():
        return Path(source).expanduser().resolve(), None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(source, revision=revision, allow_patterns=[*HASHED]))
    except HFValidationError as exc:
        raise ExportFailed(f"{source!r} is neither a folder here nor a name on the hub.") from exc
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as exc:
        raise ExportFailed(
            f"{source!r} is no folder here, and the hub did not give it: {str(exc).splitlines()[0]} "
            "Download it elsewhere and pass the folder."
        ) from exc
    return folder, folder.name


def read_checkpoint(folder: Path) -> Checkpoint:
    """Tell what the folder holds. Raises ExportFailed naming what this cannot export."""
    if (folder / "modules.json").is_file():
        return _bi_encoder(folder, _json(folder / "modules.json"))
    config = _json(folder / "config.json")
    architectures = config.get("architectures") or []
    if any(name.endswith("ForSequenceClassification") for name in architectures):
        return Checkpoint(folder, folder, "cross-encoder")
    raise ExportFailed(
        f"{folder} has no modules.json and its config.json names {', '.join(architectures) or 'no architecture'}. "
        "A bi-encoder needs modules.json, a cross-encoder a ...ForSequenceClassification architecture."
    )


def _bi_encoder(folder: Path, modules: list[dict[str, Any]]) -> Checkpoint:
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ExportFailed(
            f"{folder / 'modules.json'} chains {' -> '.join(kinds)}; this exports Transformer -> Pooling, with "
            "or without Normalize after it."
        )
    paths = [folder / module["path"] for module in modules]
    return Checkpoint(folder, paths[0], "bi-encoder", _pooling(paths[1] / "config.json"), "Normalize" in kinds)


def _pooling(file: Path) -> Pooling:
    """The one pooling mode that is on; the file has two dialects, one flag per mode or the mode's name."""
    config = _json(file)
    named = config.get("pooling_mode")
    flags = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    on = [flags.get(name, name) for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
    modes = on if named is None else [named] if isinstance(named, str) else list(named)
    if modes == ["mean"]:
        return "mean"
    if modes == ["cls"]:
        return "cls"
    raise ExportFailed(f"{file} pools by {' and '.join(modes) or 'nothing'}; this exports mean and cls pooling.")


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ExportFailed(f"{file} cannot be read ({exc.strerror}): this is no whole checkpoint.") from exc
    except ValueError as exc:
        raise ExportFailed(f"{file} is not JSON: {exc}") from exc


def _hash(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
