"""Scaffolded files onto the disk: all of them or none, and nothing that is there is touched."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from zooserve.errors import ScaffoldRefused
from zooserve_ensembles.folders import Files

__all__ = ["place"]


def place(root: Path, files: Files, copies: Mapping[Path, Path] = MappingProxyType({})) -> None:
    """Write the models of `files` below `root`, and copy what `copies` names, by its path there.

    Raises ScaffoldRefused where a folder of that name is there.
    """
    names = sorted({path.parts[0] for path in files})
    if there := [name for name in names if (root / name).exists()]:
        raise ScaffoldRefused(f"{', '.join(there)} is in {root} already, and nothing is overwritten.")
    try:
        root.mkdir(parents=True, exist_ok=True)
        # On the same disk, and where Triton does not look: a folder appears in the repository whole.
        with TemporaryDirectory(dir=root.parent, prefix=".zooserve-new-") as scratch:
            _fill(Path(scratch), files, copies)
            for name in names:
                (Path(scratch) / name).rename(root / name)
    except OSError as exc:
        raise ScaffoldRefused(f"{root} cannot be written to: {exc.strerror or exc}.") from exc


def _fill(folder: Path, files: Files, copies: Mapping[Path, Path]) -> None:
    for path in (*files, *copies):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        (folder / path).write_bytes(content)
    for path, source in copies.items():
        shutil.copyfile(source, folder / path)
