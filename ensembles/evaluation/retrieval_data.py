"""Real question-and-passage sets, made from Debian's own texts: package descriptions, manuals and FAQ.

    PYTHONPATH=ensembles python -m evaluation.retrieval_data FOLDER [--sets NAME...]

Needs Debian 12 with its package sources, `apt-get`, `apt-helper` and `dpkg-deb`; no rights, nothing is installed.
Writes one JSON file per set below FOLDER and keeps what it downloaded in FOLDER/apt, so that a second run makes the
same files. None of it is committed; a file says which package versions it was made from.

- `debian`: a package's one-line description asks for its long one. Split by the source package's name, so that
  packages built from one source lie on one side.
- `faq`: questions of the Perl and Python FAQ ask for their answers among all sections of both manuals. Test only.
- `debian_de`, `debian_fr`: the same passages, asked for by the German or French translation of the one-line
  description, where there is one. Split as `debian`.
- `manuals`: headings of other projects' manuals ask for the text below them. For training and choosing, never for
  testing: nothing of them is in `faq`.
"""

import argparse
import gzip
import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

from evaluation.faq_sections import pod_sections, rst_sections

__all__ = ["Question", "RetrievalSet", "build", "read_set"]

Split = Literal["train", "dev", "test"]

LONGEST_PASSAGE = 1_200
"""Characters of a passage that are kept; an encoder reads 256 tokens, about as many."""
SHORTEST_PASSAGE = 120
SHORTEST_SECTION = 150
LANGUAGES = ("en", "de", "fr")
SECTIONS_PER_MANUAL = 1_000
"""So that no manual outweighs the others; chosen by hash."""
MANUALS = ("git-doc", "apache2-doc", "postgresql-doc-15", "sqlite3-doc", "developers-reference", "debian-policy")


@dataclass(frozen=True)
class Question:
    """A question, and the one passage that answers it, by its place. Other good passages are not known."""

    text: str
    passage: int
    split: Split


@dataclass(frozen=True)
class RetrievalSet:
    """Passages and the questions asked of them."""

    name: str
    made_from: Mapping[str, str]
    passages: Sequence[str]
    questions: Sequence[Question]

    def of_split(self, split: Split) -> list[Question]:
        """The questions of one split, in their order."""
        return [question for question in self.questions if question.split == split]

    def sampled(self, most: Mapping[Split, int], others: int) -> "RetrievalSet":
        """So many questions of each split, their answers, and so many other passages; the same every time, by hash."""
        asked = [
            question
            for split, count in most.items()
            for question in sorted(self.of_split(split), key=lambda question: _hash(question.text))[:count]
        ]
        answers = {question.passage for question in asked}
        rest = sorted(set(range(len(self.passages))) - answers, key=lambda place: _hash(self.passages[place]))
        kept = sorted(answers.union(rest[:others]))
        places = {old: new for new, old in enumerate(kept)}
        return replace(
            self,
            passages=[self.passages[old] for old in kept],
            questions=[replace(question, passage=places[question.passage]) for question in asked],
        )


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def read_set(folder: Path, name: str) -> RetrievalSet:
    """A set that `build` wrote."""
    found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return RetrievalSet(**found | {"questions": [Question(**question) for question in found["questions"]]})


def build(folder: Path, names: Sequence[str]) -> None:
    """Write the sets that are not there yet."""
    archive = Archive(folder / "apt")
    for name in names:
        file = folder / f"{name}.json"
        if not file.is_file():
            file.write_text(json.dumps(asdict(BUILDERS[name](archive)), ensure_ascii=False, indent=0), encoding="utf-8")
        made = read_set(folder, name)
        counts = {split: len(made.of_split(split)) for split in ("train", "dev", "test")}
        sys.stdout.write(f"{name}: {len(made.passages)} passages, questions {counts}, from {dict(made.made_from)}\n")


def split_of(key: str) -> Split:
    """8 of 100 keys are test, 2 are dev; the same key always falls on the same side."""
    percent = int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest(), 16) % 100
    return "test" if percent < 8 else "dev" if percent < 10 else "train"


class Archive:
    """Debian's package lists and packages, downloaded once into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lists = folder / "lists"

    def index(self, pattern: str) -> str:
        """The one list whose file name matches, decompressed."""
        if not self._lists.is_dir():
            (self._lists / "partial").mkdir(parents=True)
            self._apt("update")
        (file,) = self._lists.glob(pattern)
        return subprocess.run(
            ["/usr/lib/apt/apt-helper", "cat-file", str(file)], check=True, capture_output=True
        ).stdout.decode(errors="replace")

    def unpacked(self, package: str) -> tuple[Path, str]:
        """The files of a package, and its version."""
        self.index("*_bookworm_main_i18n_Translation-en*")  # for the lists to be there
        folder = self._folder / package
        if not folder.is_dir():
            self._apt("download", package)
            (file,) = self._folder.glob(f"{package}_*.deb")
            subprocess.run(["dpkg-deb", "-x", str(file), str(folder)], check=True)
        (file,) = self._folder.glob(f"{package}_*.deb")
        return folder, file.name.split("_")[1].replace("%3a", ":")

    def _apt(self, *arguments: str) -> None:
        options = [
            "Acquire::Languages=",
            *(f"Acquire::Languages::={language}" for language in LANGUAGES),
            f"Dir::State::Lists={self._lists.resolve()}",
            "APT::Sandbox::User=",
        ]
        command = ["apt-get", "-q", *(part for option in options for part in ("-o", option)), *arguments]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(arguments)}: apt-get ended with {done.returncode}: {done.stderr.strip()}")


@dataclass(frozen=True)
class Description:
    """One binary package: its short and long description, and what it is built from."""

    package: str
    source: str
    short: str
    long: str


def debian(archive: Archive) -> RetrievalSet:
    """One question per source package, from its shortest-named binary package; near copies are left out."""
    rows, made_from = _debian_rows(archive)
    questions = [Question(row.short, place, split_of(row.source)) for place, row in enumerate(rows)]
    return RetrievalSet("debian", made_from, [row.long[:LONGEST_PASSAGE] for row in rows], questions)


def debian_translated(archive: Archive, language: str) -> RetrievalSet:
    """The passages of `debian`, and those questions that somebody translated."""
    rows, made_from = _debian_rows(archive)
    translations = archive.index(f"*_bookworm_main_i18n_Translation-{language}*")
    short = dict(re.findall(rf"^Package: (\S+)\n(?:.*\n)*?Description-{language}: (.*)$", translations, re.M))
    questions = [
        Question(short[row.package].strip(), place, split_of(row.source))
        for place, row in enumerate(rows)
        if short.get(row.package, row.short).strip().lower() != row.short.lower()
    ]
    made_from = {**made_from, **_version_of(language, translations)}
    return RetrievalSet(f"debian_{language}", made_from, [row.long[:LONGEST_PASSAGE] for row in rows], questions)


def _debian_rows(archive: Archive) -> tuple[list[Description], Mapping[str, str]]:
    """The descriptions that ask and answer, and what they were made from."""
    sources = dict(_sources(archive.index("*_bookworm_main_binary-amd64_Packages*")))
    translations = archive.index("*_bookworm_main_i18n_Translation-en*")
    of_source: dict[str, Description] = {}
    for found in _descriptions(translations, sources):
        kept = of_source.get(found.source)
        if _is_question(found) and (kept is None or len(found.package) < len(kept.package)):
            of_source[found.source] = found
    return list(_distinct(of_source.values())), _version_of("en", translations)


def _version_of(language: str, translations: str) -> Mapping[str, str]:
    digest = hashlib.sha256(translations.encode()).hexdigest()[:16]
    return {f"bookworm main Translation-{language}, SHA-256": digest}


def _sources(packages: str) -> Iterator[tuple[str, str]]:
    for stanza in packages.split("\n\n"):
        name = re.search(r"^Package: (\S+)", stanza, re.M)
        source = re.search(r"^Source: (\S+)", stanza, re.M)
        if name:
            yield name[1], (source or name)[1]


_BOILERPLATE = re.compile(
    r"this (meta)?package (contains|provides|is|includes) (the )?"
    r"(development|documentation|debug|shared|static|common|transitional|dummy|header)",
    re.I,
)


def _descriptions(translations: str, sources: Mapping[str, str]) -> Iterator[Description]:
    for stanza in translations.split("\n\n"):
        name = re.search(r"^Package: (\S+)", stanza, re.M)
        text = re.search(r"^Description-en: (.*)\n((?: .*\n?)+)", stanza, re.M)
        if name and text and name[1] in sources:
            paragraphs = re.split(r"^ *\.? *$", text[2], flags=re.M)
            kept = [" ".join(part.split()) for part in paragraphs if not _BOILERPLATE.match(part.strip())]
            yield Description(name[1], sources[name[1]], text[1].strip(), " ".join(filter(None, kept)))


def _is_question(found: Description) -> bool:
    """Whether the short description says something, and not literally what the long one says."""
    return (
        len(found.long) >= SHORTEST_PASSAGE
        and len(found.short.split()) >= 3
        and not re.search(r"transitional|dummy|debug symbols", found.short, re.I)
        and found.short.lower() not in found.long.lower()
    )


def _distinct(rows: Iterable[Description]) -> Iterator[Description]:
    seen: set[str] = set()
    for row in rows:
        keys = {row.long[:150].lower(), row.short.lower()}
        if seen.isdisjoint(keys):
            yield row
        seen |= keys


def manuals(archive: Archive) -> RetrievalSet:
    """Sections of HTML manuals, split by file. A heading asks when it has three words and stands nowhere else."""
    made_from, sections = {}, list[Section]()
    for package in MANUALS:
        folder, made_from[package] = archive.unpacked(package)
        of_package = [section for file in _html_files(folder) for section in _sections(file, package)]
        of_package.sort(key=lambda section: _hash(section.text))
        sections += of_package[:SECTIONS_PER_MANUAL]
    passages = list(dict.fromkeys(section.text for section in sections))
    places = {passage: place for place, passage in enumerate(passages)}
    times = Counter(section.heading.lower() for section in sections)
    questions = [
        Question(section.heading, places[section.text], "dev" if split_of(section.file) != "train" else "train")
        for section in sections
        if times[section.heading.lower()] == 1 and len(section.heading.split()) >= 3
    ]
    return RetrievalSet("manuals", made_from, passages, questions)


@dataclass(frozen=True)
class Section:
    """A heading and the text below it."""

    file: str
    heading: str
    text: str


def _html_files(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and _HTML.search(file.name)]


_HTML = re.compile(r"\.html(\.en)?(\.gz)?$")


def _sections(file: Path, package: str) -> Iterator[Section]:
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    parser = _Headings()
    parser.feed(content.decode(errors="replace"))
    for heading, text in parser.sections:
        heading = re.sub(r"^[\d.\s]+|[\s¶#]+$", "", " ".join(heading.split()))
        text = " ".join(text.split())[:LONGEST_PASSAGE]
        if len(text) >= SHORTEST_SECTION and 3 <= len(heading) <= 120:
            yield Section(f"{package}/{file.name}", heading, text)


class _Headings(HTMLParser):
    """Collects pairs of a heading and the text up to the next one."""

    _SILENT = ("script", "style", "title", "nav", "footer")

    def __init__(self) -> None:
        super().__init__()
        self.sections: list[list[str]] = []
        self._in_heading = False
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if re.fullmatch("h[1-6]", tag):
            self.sections.append(["", ""])
            self._in_heading = True
        self._silent += tag in self._SILENT

    def handle_endtag(self, tag: str) -> None:
        self._in_heading = self._in_heading and not re.fullmatch("h[1-6]", tag)
        self._silent -= tag in self._SILENT and self._silent > 0

    def handle_data(self, data: str) -> None:
        if self.sections and not self._silent:
            self.sections[-1][0 if self._in_heading else 1] += data + ("" if self._in_heading else " ")


def faq(archive: Archive) -> RetrievalSet:
    """Headings of the Perl and Python FAQ that end in a question mark, among all sections of both manuals."""
    perl, perl_version = archive.unpacked("perl-doc")
    python, python_version = archive.unpacked("python3.11-doc")
    sections = [
        Section(str(file), heading, text[:LONGEST_PASSAGE])
        for folder, pattern, read in ((perl, "*.pod", pod_sections), (python, "_sources/**/*.rst.txt", rst_sections))
        for file in sorted(folder.rglob(pattern))
        if "/whatsnew/" not in str(file)
        for heading, text in read(file.read_text(encoding="utf-8", errors="replace"))
        if len(text) >= SHORTEST_SECTION and len(heading) >= 3
    ]
    questions = [
        Question(section.heading, place, "test")
        for place, section in enumerate(sections)
        if section.heading.endswith("?") and re.search(r"/perlfaq\d\.pod$|/faq/", section.file)
    ]
    made_from = {"perl-doc": perl_version, "python3.11-doc": python_version}
    return RetrievalSet("faq", made_from, [section.text for section in sections], questions)


BUILDERS: Mapping[str, Callable[[Archive], RetrievalSet]] = {
    "debian": debian,
    "debian_de": partial(debian_translated, language="de"),
    "debian_fr": partial(debian_translated, language="fr"),
    "faq": faq,
    "manuals": manuals,
}


def main() -> None:
    """Write what is missing, print what is there."""
    parser = argparse.ArgumentParser(description="Make the retrieval sets that models are measured on.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", choices=sorted(BUILDERS), default=sorted(BUILDERS))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    build(arguments.folder, arguments.sets)


if __name__ == "__main__":
    main()
