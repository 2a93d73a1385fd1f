"""How well `file_type` tells what files are, on the files that Debian's packages installed on this machine.

    PYTHONPATH=ensembles python -m evaluation.file_types [--magika WHEEL]

What a file is follows from its extension, which the network never sees; only files that a package owns are taken.
Prints per type how many were told right, and which mistakes are the most common. With magika's own wheel its answers on
the same files are compared.
"""

import argparse
import hashlib
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from zooserve_ensembles.content import ContentTooShort, Ends

__all__ = ["Sample", "installed", "told"]

MEMBER = Path("model_repository/zoo")
OWNED = Path("/var/lib/dpkg/info")
TYPES = {
    ".css": "css",
    ".gif": "gif",
    ".gz": "gzip",
    ".h": "c",
    ".html": "html",
    ".jar": "jar",
    ".jpg": "jpeg",
    ".js": "javascript",
    ".json": "json",
    ".md": "markdown",
    ".pdf": "pdf",
    ".pl": "perl",
    ".pm": "perl",
    ".png": "png",
    ".py": "python",
    ".sh": "shell",
    ".so": "elf",
    ".svg": "svg",
    ".tcl": "tcl",
    ".ttf": "ttf",
    ".whl": "zip",
    ".xml": "xml",
    ".yaml": "yaml",
    ".zip": "zip",
}
PER_TYPE = 60


@dataclass(frozen=True)
class Sample:
    """A file and what its extension says that it is."""

    path: Path
    label: str
    content: bytes


def installed() -> list[Sample]:
    """Up to PER_TYPE files of each type, no two alike, chosen by hash, so that a second run takes the same."""
    paths = {Path(line) for file in OWNED.glob("*.list") for line in file.read_text().splitlines()}
    taken: dict[str, dict[bytes, Sample]] = {}
    for path in sorted(paths, key=lambda path: hashlib.sha256(str(path).encode()).digest()):
        label = TYPES.get(path.suffix)
        of_type = taken.setdefault(label or "", {})
        if label is None or len(of_type) >= PER_TYPE or "c++" in path.parts or not _is_plain(path):
            continue
        content = path.read_bytes()
        of_type.setdefault(hashlib.sha256(content).digest(), Sample(path, label, content))
    return [sample for of_type in taken.values() for sample in of_type.values()]


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size > 0


def told(samples: Sequence[Sample]) -> tuple[list[str], npt.NDArray[np.float32]]:
    """The likeliest type of each by the served graph, through the stage's own code; `` where a file is too short."""
    ends = Ends.from_file(MEMBER / "file_type_reader" / "1" / "config.json")
    session = ort.InferenceSession(str(MEMBER / "file_type_encoder" / "1" / "model.onnx"))
    labels = (MEMBER / "file_type_encoder" / "1" / "labels.txt").read_text().split()
    found, likely = [], []
    for sample in samples:
        try:
            (row,) = session.run(["target_label"], {"bytes": ends.of(sample.content)[None]})[0]
        except ContentTooShort:
            row = np.zeros(len(labels), np.float32)
        found.append(labels[int(row.argmax())] if row.any() else "")
        likely.append(row.max())
    return found, np.array(likely, np.float32)


def _by_type(samples: Sequence[Sample], found: Sequence[str]) -> Iterator[str]:
    for label in sorted({sample.label for sample in samples}):
        answers = [answer for answer, sample in zip(found, samples, strict=True) if sample.label == label]
        wrong = Counter(answer for answer in answers if answer != label).most_common(2)
        mistakes = ", ".join(f"{answer or 'too short'} {times}" for answer, times in wrong)
        yield f"{label:12} {len(answers):4} {answers.count(label) / len(answers):.3f} {mistakes}"
    right = [answer == sample.label for answer, sample in zip(found, samples, strict=True)]
    yield f"all          {len(right):4} {np.mean(right):.3f}"


def _beside_magika(wheel: Path, samples: Sequence[Sample], found: Sequence[str]) -> str:
    """How often the package's network says the same, and how its final word, which rules amend, does."""
    with tempfile.TemporaryDirectory() as scratch:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch)
        sys.path.insert(0, scratch)
        from magika import Magika

        magika = Magika()
        results = [magika.identify_bytes(sample.content) for sample in samples]
    same = np.mean([str(result.dl.label) == answer for result, answer in zip(results, found, strict=True) if answer])
    final = [str(result.output.label) for result in results]
    right = np.mean([answer == sample.label for answer, sample in zip(final, samples, strict=True)])
    generic = np.mean([answer in ("txt", "unknown") for answer in final])
    return f"magika's network says the same of {same:.4f}; its final word: {right:.3f} right, {generic:.3f} generic"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--magika", type=Path, help="magika-1.0.3 wheel")
    wheel = parser.parse_args().magika
    samples = installed()
    found, likely = told(samples)
    lines = list(_by_type(samples, found))
    for least in (0.5, 0.7, 0.9):
        kept = likely >= least
        right = [answer == sample.label for answer, sample in zip(found, samples, strict=True)]
        lines.append(f"from {least}: {kept.mean():.3f} of them, {np.mean(np.array(right)[kept]):.3f} right")
    if wheel is not None:
        lines.append(_beside_magika(wheel, samples, found))
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
