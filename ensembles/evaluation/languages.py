"""How well `language` tells languages, on texts that it was not trained on: Debian's translated package descriptions.

    PYTHONPATH=ensembles python -m evaluation.languages FOLDER

Needs Debian 12 with its package sources, `apt-get` and `apt-helper`; no rights, nothing is installed. What it downloads
stays in FOLDER. Prints per language the accuracy on long descriptions and on one-line ones, with their number, and how
it depends on the bytes that are read and on the model's own probability.
"""

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from zooserve_ensembles.language import MAX_BYTES, Automaton, features_of

__all__ = ["Sample", "Told", "samples", "told"]

MEMBER = Path("model_repository/zoo")
LANGUAGES = (  # noqa: SIM905 (read as a list of words)
    "ca cs da de el en eo es eu fi fr gl hr hu id it ja ko lt nb nl nn pl pt pt_BR ro ru sk sl sr sv tr uk vi zh zh_CN"
    " zh_TW"
).split()
ISO = {"nb": "no", "pt_BR": "pt", "zh_CN": "zh", "zh_TW": "zh"}
"""What the model calls a language that Debian calls otherwise."""
PER_LANGUAGE = 300
BATCH = 32
_RECORD = re.compile(
    r"^Package: (?P<package>.+)\n(?:.+\n)*?Description-(?!md5)[\w-]+: (?P<short>.*)\n(?P<long>(?: .*\n?)*)", re.M
)


@dataclass(frozen=True)
class Sample:
    """A text and the language it is in."""

    language: str
    text: str


@dataclass(frozen=True)
class Told:
    """The likeliest language of each sample, and how likely."""

    languages: Sequence[str]
    probabilities: npt.NDArray[np.float32]

    def right(self, wanted: Sequence[Sample]) -> npt.NDArray[np.bool_]:
        """Which samples were told right."""
        return np.array([found == sample.language for found, sample in zip(self.languages, wanted, strict=True)])


def download(folder: Path) -> None:
    """The translations of every language, unless they are there."""
    if list(folder.glob("*_Translation-*")):
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "partial").mkdir(exist_ok=True)
    options = [f"Dir::State::Lists={folder.resolve()}", "APT::Sandbox::User=", "Acquire::Languages="]
    options += [f"Acquire::Languages::={language}" for language in LANGUAGES]
    command = ["apt-get", "-q", *(part for option in options for part in ("-o", option)), "update"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"apt-get update ended with {done.returncode}: {done.stderr.strip()}")


def samples(folder: Path) -> tuple[list[Sample], list[Sample]]:
    """Long descriptions and one-line ones, up to PER_LANGUAGE of each language."""
    longs: dict[str, dict[str, str]] = {}
    shorts: dict[str, dict[str, str]] = {}
    english = dict(_texts(folder, "en"))
    for name in LANGUAGES:
        language = ISO.get(name, name)
        for package, (short, long) in _texts(folder, name):
            # Where a translator left a text as it was, it is in English.
            if language == "en" or (short, long) != english.get(package):
                longs.setdefault(language, {}).setdefault(long, package)
                shorts.setdefault(language, {}).setdefault(short, package)
    return list(_chosen(longs)), list(_chosen(shorts))


def _texts(folder: Path, name: str) -> Iterator[tuple[str, tuple[str, str]]]:
    for file in sorted(folder.glob(f"*_bookworm_main_i18n_Translation-{name.replace('_', '%5f')}.*")):
        plain = subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", str(file)], check=True, capture_output=True)
        for record in _RECORD.finditer(plain.stdout.decode()):
            long = re.sub(r"^ \.?", "", record["long"], flags=re.M)
            if len(long) >= 100 and len(record["short"]) >= 10:
                yield record["package"], (record["short"], " ".join(long.split()))


def _chosen(texts: dict[str, dict[str, str]]) -> Iterator[Sample]:
    """By hash, so that a second run takes the same."""
    for language, found in sorted(texts.items()):
        ordered = sorted(found, key=lambda text: hashlib.sha256(text.encode()).digest())
        yield from (Sample(language, text) for text in ordered[:PER_LANGUAGE])


def told(wanted: Iterable[Sample], most_bytes: int = MAX_BYTES) -> Told:
    """What the served graph says, through the stage's own code."""
    automaton = Automaton.from_file(MEMBER / "language_tokenizer" / "1" / "automaton.npz")
    session = ort.InferenceSession(str(MEMBER / "language_encoder" / "1" / "model.onnx"))
    texts = [sample.text.encode()[:most_bytes].decode(errors="ignore") for sample in wanted]
    languages: list[str] = []
    probabilities = []
    for start in range(0, len(texts), BATCH):
        found = features_of(automaton, texts[start : start + BATCH])
        feed = {"features": found.features, "counts": found.counts, "sharpness": found.sharpness}
        codes, likely = session.run(["language", "language_probability"], feed)
        languages += codes[:, 0].tolist()
        probabilities.append(likely[:, 0])
    return Told(languages, np.concatenate(probabilities))


def main() -> None:
    """Download, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    download(folder)
    longs, shorts = samples(folder)
    long, short = told(longs), told(shorts)
    sys.stdout.writelines(f"{line}\n" for line in _by_language(longs, long.right(longs), shorts, short))
    for name, wanted, found in (("long", longs, long), ("one line", shorts, short)):
        sys.stdout.writelines(f"{name}, {line}\n" for line in _by_bytes_and_confidence(wanted, found))


def _by_bytes_and_confidence(wanted: Sequence[Sample], found: Told) -> Iterator[str]:
    for most in (32, 64, 128, 256, 512, MAX_BYTES):
        yield f"{most} bytes read: {told(wanted, most).right(wanted).mean():.3f}"
    for least in (0.1, 0.3, 0.5, 0.7, 0.9):
        kept = found.probabilities >= least
        yield f"from {least}: {kept.mean():.3f} of them, {found.right(wanted)[kept].mean():.3f} right"


def _by_language(
    longs: Sequence[Sample], long_right: npt.NDArray[np.bool_], shorts: Sequence[Sample], short: Told
) -> Iterator[str]:
    means = []
    for language in sorted({sample.language for sample in longs}):
        of_long = long_right[[sample.language == language for sample in longs]]
        chosen = np.array([sample.language == language for sample in shorts])
        of_short = short.right(shorts)[chosen]
        wrong = [found for found, mine in zip(short.languages, chosen, strict=True) if mine and found != language]
        common = max(set(wrong), key=wrong.count, default="")
        means.append((of_long.mean(), of_short.mean()))
        yield f"{language:4} {len(of_long):4} {of_long.mean():.3f} {len(of_short):4} {of_short.mean():.3f} {common}"
    yield "mean of the languages: long {:.3f}, one line {:.3f}".format(*np.mean(means, axis=0))


if __name__ == "__main__":
    main()
