"""How often `nsfw` calls a harmless image pornographic: photographs, drawings and screenshots out of Debian packages.

    PYTHONPATH=ensembles python -m evaluation.images FOLDER

Needs Debian 12 with its package sources, `apt-get` and `dpkg-deb`; no rights, nothing is installed. What it downloads
(290 MB) stays in FOLDER. Only false alarms are measured: of what the network should find there is no labelled set here.
"""

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

from zooserve_ensembles.images import ImageUnreadable, decoded, pixels_of

__all__ = ["Scored", "scored"]

MEMBER = Path("model_repository/zoo/nsfw_encoder/1/model.onnx")
PACKAGES = ("tuxpaint-stamps-default", "gnome-backgrounds", "mate-backgrounds", "gimp-help-en")
"""Photographs of animals, food, people and things; wallpapers; a manual's screenshots and examples."""
SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".gif"}
PER_PACKAGE = 300
SMALLEST = 4096
"""Bytes: what is smaller is an icon or a button."""
MAX_PIXELS = 25_000_000


@dataclass(frozen=True)
class Scored:
    """An image by its path, and how pornographic it is called."""

    path: Path
    score: float


def download(folder: Path, package: str) -> Path:
    """The package's files."""
    tree = folder / package
    if not tree.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        if not (archives := list(folder.glob(f"{package}_*.deb"))):
            command = ["apt-get", "-q", "-o", "APT::Sandbox::User=", "download", package]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            archives = list(folder.glob(f"{package}_*.deb"))
        subprocess.run(["dpkg-deb", "-x", str(archives[0]), str(tree)], check=True)
    return tree


def scored(tree: Path, session: ort.InferenceSession) -> Iterator[Scored]:
    """Up to PER_PACKAGE images of a package, no two alike, chosen by hash, through the stage's own code."""
    found = {
        hashlib.sha256(path.read_bytes()).hexdigest(): path
        for path in sorted(tree.rglob("*"))
        if path.suffix.lower() in SUFFIXES and path.is_file() and path.stat().st_size >= SMALLEST
    }
    for _, path in sorted(found.items())[:PER_PACKAGE]:
        try:
            pixels = pixels_of(decoded(path.read_bytes(), MAX_PIXELS))
        except ImageUnreadable as fault:
            sys.stderr.write(f"{path.name}: {fault}\n")
            continue
        (probabilities,) = session.run(None, {session.get_inputs()[0].name: pixels[None]})
        yield Scored(path.relative_to(tree), float(probabilities[0, 1]))


def main() -> None:
    """Download, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    session = ort.InferenceSession(str(MEMBER))
    everything: list[Scored] = []
    for package in PACKAGES:
        images = list(scored(download(folder, package), session))
        everything += images
        sys.stdout.write(_summary(package, images))
    sys.stdout.write(_summary("all", everything))
    for image in sorted(everything, key=lambda image: -image.score)[:10]:
        sys.stdout.write(f"{image.score:.3f} {image.path}\n")


def _summary(name: str, images: list[Scored]) -> str:
    scores = np.array([image.score for image in images])
    shares = ", ".join(f"from {least}: {np.mean(scores >= least):.4f}" for least in (0.2, 0.5, 0.8))
    return f"{name}: {len(scores)} images, {shares}\n"


if __name__ == "__main__":
    main()
