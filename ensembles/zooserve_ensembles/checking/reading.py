"""From a folder to a `Repository`: what each file says, and findings where it says nothing that can be read."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from zooserve_ensembles.backends import backend_of_file
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.locating import Block, Unlocatable, locate
from zooserve_ensembles.checking.repository import Config, Model, Repository, Source, Variant

__all__ = ["RULES", "did_you_mean", "read_config", "read_repository"]

NOT_A_REPOSITORY = Rule(
    "not-a-repository", Severity.ERROR, "The folder is missing, empty, a model, or a level too high"
)
STRAY_FOLDER = Rule(
    "stray-folder", Severity.ERROR, "A folder without config.pbtxt and version is a model that never gets ready"
)
UNREADABLE = Rule("config-unreadable", Severity.ERROR, "A configuration or its folder cannot be read, or is not UTF-8")
SYNTAX = Rule("config-syntax", Severity.ERROR, "The protobuf refuses a configuration")
TEMPLATE = Rule("config-template", Severity.ERROR, "A configuration still holds ${placeholders}")
EMPTY = Rule("config-empty", Severity.WARNING, "A configuration is empty")
TWO_SCHEDULERS = Rule(
    "two-schedulers",
    Severity.ERROR,
    "Only one of dynamic_batching, sequence_batching and ensemble_scheduling can be chosen",
)
NO_CONFIG = Rule("no-config", Severity.NOTE, "Triton completes the configuration from the weights' file")
NO_VERSION = Rule(
    "no-version-folder", Severity.ERROR, "A model without a version folder is not served, an ensemble too"
)
DANGLING = Rule("dangling-link", Severity.ERROR, "A link leads nowhere")
IGNORED_VERSION = Rule("ignored-version", Severity.WARNING, "Triton ignores a folder whose name is no plain number")

RULES = (
    NOT_A_REPOSITORY,
    STRAY_FOLDER,
    UNREADABLE,
    SYNTAX,
    TEMPLATE,
    EMPTY,
    TWO_SCHEDULERS,
    NO_CONFIG,
    NO_VERSION,
    DANGLING,
    IGNORED_VERSION,
)

_SCHEDULERS = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")
_VERSION_LIKE = re.compile(r"(v|ver|version)?[-_]?\d[\d._-]*", re.IGNORECASE)


def read_repository(root: Path) -> tuple[Repository, list[Finding]]:
    """Everything that can be read below `root`, and a finding for each thing that cannot."""
    if fault := _no_repository(root):
        return Repository(root, {}), [NOT_A_REPOSITORY.at(Place(root), fault)]
    models: dict[str, Model] = {}
    unreadable: set[str] = set()
    findings: list[Finding] = []
    for folder in _folders(root):
        try:
            model, found = _read_model(folder)
        except OSError as exc:
            model, found = None, [UNREADABLE.at(Place(folder), f"it cannot be read: {exc.strerror or exc}")]
        findings += found
        if model is not None:
            models[folder.name] = model
        elif not any(finding.rule == STRAY_FOLDER.name for finding in found):
            unreadable.add(folder.name)
    return Repository(root, models, frozenset(unreadable)), findings


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A closing sentence: the nearest known name, else all of them if they are few."""
    if near := get_close_matches(name, known, 1, 0.6):
        return f"Did you mean {near[0]}?"
    if known and len(known) <= 8:
        return f"Known: {', '.join(sorted(known))}."
    return ""


def _no_repository(root: Path) -> str:
    if not root.is_dir():
        return "there is no such folder: give the one that holds a folder for each model"
    if (root / "config.pbtxt").is_file():
        return f"this is one model: check the folder that holds it, {root.parent}"
    try:
        folders = _folders(root)
    except OSError as exc:
        return f"it cannot be read: {exc.strerror or exc}"
    if not folders:
        return "it holds no models: a model is a folder with config.pbtxt and a version folder such as 1/"
    below = [folder.name for folder in folders if list(folder.glob("*/config.pbtxt"))]
    if below and not any(_is_model(folder) for folder in folders):
        return f"it holds no models itself, but these folders do, check them one by one: {', '.join(sorted(below))}"
    return ""


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() or (path.is_symlink() and not path.exists()))


def _is_model(folder: Path) -> bool:
    return (folder / "config.pbtxt").exists() or any(_version(path) is not None for path in _subfolders(folder))


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


def _version(path: Path) -> int | None:
    """The number that Triton reads in a folder's name: plain digits without a leading zero."""
    name = path.name
    return int(name) if name.isascii() and name.isdecimal() and str(int(name)) == name else None


def _read_model(folder: Path) -> tuple[Model | None, list[Finding]]:
    findings = list(_folder_findings(folder))
    file = folder / "config.pbtxt"
    if any(finding.rule in (STRAY_FOLDER.name, DANGLING.name) and finding.place.file == folder for finding in findings):
        return None, findings
    versions = tuple(sorted(number for path in _subfolders(folder) if (number := _version(path)) is not None))
    if not file.exists() and not file.is_symlink():
        empty = model_config_pb2.ModelConfig()
        return Model(folder, empty, Source(folder), versions), findings
    config, source, found = read_config(file)
    findings += found
    if config is None:
        return None, findings
    if not versions:
        findings.append(_no_version(folder, source))
    variants = []
    for variant in sorted((folder / "configs").glob("*.pbtxt")):
        read, variant_source, found = read_config(variant)
        findings += found
        if read is not None:
            variants.append(Variant(read, variant_source))
    return Model(folder, config, source, versions, tuple(variants)), findings


def _no_version(folder: Path, source: Source) -> Finding:
    return NO_VERSION.at(
        source.place("name"),
        f"{folder.name} has no version folder, so Triton does not serve it: make {folder.name}/1/"
        + (" with a .gitkeep in it, ensembles need one too" if source.block.find("ensemble_scheduling") else ""),
    )


def _folder_findings(folder: Path) -> Iterator[Finding]:
    if not folder.exists():
        yield DANGLING.at(Place(folder), f"this link leads to {_target(folder)}, which is not there")
        return
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and not path.exists() and (_version(path) is not None or path.name == "config.pbtxt"):
            yield DANGLING.at(
                Place(path),
                f"this link leads to {_target(path)}, which is not there: Triton loads no version of the model",
            )
    yield from _ignored(folder)
    if (folder / "config.pbtxt").exists() or (folder / "config.pbtxt").is_symlink():
        return
    versions = [path for path in _subfolders(folder) if _version(path) is not None]
    if not versions:
        yield _stray(folder)
        return
    files = sorted({file.name for path in versions for file in path.iterdir()})
    if backend := backend_of_file(files):
        yield NO_CONFIG.at(
            Place(folder), f"{folder.name} has no config.pbtxt: Triton takes backend {backend} and completes the rest"
        )


def _stray(folder: Path) -> Finding:
    place = Place(folder)
    if folder.name.startswith(".") or folder.name == "__pycache__":
        return STRAY_FOLDER.at(
            place, f"Triton takes {folder.name} for a model that fails to load: keep it out", Severity.WARNING
        )
    if list(folder.glob("*/config.pbtxt")):
        return STRAY_FOLDER.at(
            place, f"{folder.name} holds models itself: Triton does not look there, give it a second --model-repository"
        )
    return STRAY_FOLDER.at(
        place,
        f"{folder.name} has neither config.pbtxt nor a version folder: Triton takes it for a model that never gets "
        "ready. Add them, or move the folder out of the repository",
    )


def _ignored(folder: Path) -> Iterator[Finding]:
    for path in _subfolders(folder):
        if _version(path) is None and _VERSION_LIKE.fullmatch(path.name):
            number = re.sub(r"\D+", "", path.name.partition(".")[0]).lstrip("0") or "1"
            yield IGNORED_VERSION.at(
                Place(path), f"Triton ignores this folder, a version's name is a plain number: call it {number}"
            )


def _target(link: Path) -> str:
    return str(link.readlink())


def read_config(file: Path) -> tuple[Config | None, Source, list[Finding]]:
    """One config.pbtxt with its lines; None with a finding where Triton would refuse it."""
    source = Source(file)
    if file.exists() and not file.is_file():
        return None, source, [UNREADABLE.at(Place(file, 1), "it cannot be read: it is no file")]
    try:
        raw = file.read_bytes()
    except OSError as exc:
        return None, source, [UNREADABLE.at(Place(file, 1), f"it cannot be read: {exc.strerror or exc}")]
    text, broken = _decoded(raw)
    if broken:
        fault = UNREADABLE.at(Place(file, broken), "this line is not UTF-8: save the file as UTF-8")
        return None, source, [fault]
    source = Source(file, _located(text))
    if finding := _two_schedulers(source):
        return None, source, [finding]
    try:
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as exc:
        return None, source, [_refused(file, text, exc)]
    except RecursionError:
        return None, source, [SYNTAX.at(Place(file, 1), "its fields are nested too deep")]
    empty = [] if source.block.fields else [EMPTY.at(Place(file, 1), "it is empty: Triton has to guess everything")]
    return config, source, empty


def _decoded(raw: bytes) -> tuple[str, int]:
    """The text, and the first line that is not UTF-8; a comment may be, Triton does not look into it."""
    try:
        return raw.decode("utf-8"), 0
    except UnicodeDecodeError:
        lines = raw.split(b"\n")
        bad = (number for number, line in enumerate(lines, start=1) if not _is_utf8(line.partition(b"#")[0]))
        return raw.decode("utf-8", "replace"), next(bad, 0)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _located(text: str) -> Block:
    try:
        return locate(text)
    except (Unlocatable, RecursionError):  # the protobuf's own parser says it better
        return Block()


def _two_schedulers(source: Source) -> Finding | None:
    chosen = [field for field in source.block.fields if field.name in _SCHEDULERS]
    other = next((field for field in chosen if field.name != chosen[0].name), None)
    if other is None:
        return None
    return TWO_SCHEDULERS.at(
        Place(source.file, other.line),
        f"{other.name} beside {chosen[0].name} (line {chosen[0].line}): a model has one scheduler, remove one of them",
    )


def _refused(file: Path, text: str, exc: text_format.ParseError) -> Finding:
    line = exc.GetLine() or 1
    # Its text is `line:column : 'the line': reason`, without the middle for an unknown field.
    reason = re.sub(r"^[\d:]+ : ('.*': )?", "", str(exc)).rstrip(".")
    written = text.split("\n")[line - 1]
    if "${" in text and ("$" in written or "$" in reason):
        return TEMPLATE.at(Place(file, line), f"this is a template: fill in its placeholders first ({written.strip()})")
    if text.startswith("\ufeff"):
        return SYNTAX.at(Place(file, 1), "it begins with a byte order mark, which Triton refuses: save it without one")
    where = f"line {line}, column {exc.GetColumn()}: " if exc.GetColumn() else ""
    return SYNTAX.at(Place(file, line), f"{where}{reason}. {_suggestion(reason)}".strip())


def _suggestion(reason: str) -> str:
    """The nearest field or value, where the protobuf knows none of that name."""
    match = re.search(r'(Message|Enum) type "(?P<type>[\w.]+)" has no (field|value) named "?(?P<name>\w+)', reason)
    if match is None:
        return ""
    pool = model_config_pb2.DESCRIPTOR.pool
    if match.group(1) == "Message":
        known = [field.name for field in pool.FindMessageTypeByName(match.group("type")).fields]
    else:
        known = list(pool.FindEnumTypeByName(match.group("type")).values_by_name)
    near = get_close_matches(match.group("name"), known, 1, 0.6)
    return f"Did you mean {near[0]}?" if near else f"It has {', '.join(known)}." if len(known) <= 20 else ""
