"""Rules of a version's files: the right name, whole, and what they need beside them."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from zooserve_ensembles.backends import BACKENDS, FIL_FILES
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.onnx_file import Graph, NotOnnx
from zooserve_ensembles.checking.repository import Model, Repository, is_file, is_there

__all__ = ["RULES", "is_pointer", "weights_findings"]

ABSENT = Rule("weights-absent", Severity.WARNING, "A version's folder is empty: nothing to serve yet")
MISNAMED = Rule(
    "weights-misnamed", Severity.ERROR, "A version's folder lacks the file that its backend reads, under that name"
)
HALF_COPIED = Rule(
    "version-half-copied", Severity.ERROR, "A version's folder lacks a file that another one there needs"
)
PARTIAL = Rule(
    "weights-partial", Severity.ERROR, "A version's folder holds the leftover of a copy or download that was cut"
)
EMPTY = Rule("weights-empty", Severity.ERROR, "A weights' file has no bytes")
LFS = Rule("weights-lfs-pointer", Severity.ERROR, "A file is Git LFS's pointer to the weights, not the weights")
NOT_ONNX = Rule("not-onnx", Severity.ERROR, "model.onnx is no ONNX model, or is cut off")
EXTERNAL = Rule(
    "onnx-data-missing", Severity.ERROR, "The file that holds an ONNX model's weights is missing or too short"
)
PYTHON = Rule(
    "python-broken", Severity.ERROR, "model.py cannot be compiled; a warning where it has no TritonPythonModel"
)

RULES = (ABSENT, MISNAMED, HALF_COPIED, PARTIAL, EMPTY, LFS, NOT_ONNX, EXTERNAL, PYTHON)

_POINTER = b"version https://git-lfs.github.com/spec/"
# rsync's and browsers' names for what is not yet whole.
_PARTIAL = re.compile(
    r".+\.(part|partial|tmp|temp|crdownload|download|incomplete|filepart|aria2)"
    r"|\..+\.(onnx|onnx_data|data|plan|engine|pt|pth|xml|bin|json|py|model|gguf|safetensors)\.\w{6}",
    re.IGNORECASE,
)
# What people keep beside weights without any backend reading it.
_NOISE = re.compile(r"\..*|__pycache__|readme.*|licen[cs]e.*|.*\.(md|rst|sh|log|gitkeep)|\.git.*", re.IGNORECASE)


def weights_findings(repository: Repository) -> Iterator[Finding]:
    """The files of every version of every model that reads any."""
    for model in repository.stages:
        for version in model.versions:
            found = _version(model, version, repository)
            if version in model.served:
                yield from found
            else:  # not served, so it does no harm yet
                yield from (Finding(each.place, Severity.WARNING, each.rule, each.message) for each in found)


def _version(model: Model, version: int, repository: Repository) -> Iterator[Finding]:
    folder = model.version_folder(version)
    names = [name for name in model.files(version) if not _NOISE.fullmatch(name) or _PARTIAL.fullmatch(name)]
    for name in names:
        yield from _file(folder / name)
    wanted = _wanted(model)
    there = [name for name in wanted if is_there(folder / name)]
    if there:
        yield from _beside(model, folder, there[0])
        yield from _main_file(model, version, folder / there[0])
    elif wanted and not _told_already(wanted, names) and not _to_be_fetched(model, version, wanted, repository):
        yield _none_of(model, version, wanted, names)
    yield from _sibling(model, version, names)


def _wanted(model: Model) -> Sequence[str]:
    """The names that the backend looks for, any of which will do."""
    config = model.config
    if model.weights:
        return (model.weights,)
    if config.cc_model_filenames:
        return tuple(config.cc_model_filenames.values())
    backend = BACKENDS.get(model.backend)
    if backend is None:
        return ()
    if backend.name == "fil":
        kind = config.parameters["model_type"].string_value if "model_type" in config.parameters else "xgboost"
        return (FIL_FILES[kind],) if kind in FIL_FILES else backend.files
    if config.platform.startswith("tensorflow_"):
        return (f"model.{config.platform.removeprefix('tensorflow_')}",)
    return backend.files


def _none_of(model: Model, version: int, wanted: Sequence[str], names: Sequence[str]) -> Finding:
    folder = model.version_folder(version)
    shown, reads = f"{model.name}/{version}", " or ".join(wanted)
    others = [
        other
        for other in model.versions
        if other != version and any(is_there(model.version_folder(other) / name) for name in wanted)
    ]
    if not names:
        if others:
            return HALF_COPIED.at(
                Place(folder),
                f"{shown}/ is empty, while {model.name}/{others[-1]}/ holds a model: copy {reads} into it",
            )
        return ABSENT.at(Place(folder), f"{shown}/ is empty: put {reads} there before Triton starts")
    alike = [name for name in names if Path(name).suffix in {Path(want).suffix for want in wanted}]
    if alike:
        return MISNAMED.at(
            Place(folder / alike[0]),
            f"backend {model.backend} reads {reads}, but {shown}/ holds {', '.join(alike)}: rename it, or say "
            f'default_model_filename: "{alike[0]}"',
        )
    return MISNAMED.at(
        Place(folder),
        f"backend {model.backend} reads {reads}, which is not in {shown}/; it holds {', '.join(names)}: "
        "the folder is half-copied, or the backend is another",
    )


def _told_already(wanted: Sequence[str], names: Sequence[str]) -> bool:
    """Whether the file is there as a link that leads nowhere, or as what is left of a copy."""
    return any(name in wanted or _PARTIAL.fullmatch(name) for name in names)


def _to_be_fetched(model: Model, version: int, wanted: Sequence[str], repository: Repository) -> bool:
    return any(Path(model.name, str(version), name) in repository.fetched for name in wanted)


def is_pointer(path: Path) -> bool:
    """Whether it is what Git LFS leaves in a file's place until it is pulled."""
    return path.is_file() and path.stat().st_size < 1024 and path.read_bytes().startswith(_POINTER)


def _file(path: Path) -> Iterator[Finding]:
    if path.is_symlink() and not path.exists():
        yield HALF_COPIED.at(
            Place(path), f"this link leads to {path.readlink()}, which is not there: copy the file itself"
        )
    elif _PARTIAL.fullmatch(path.name):
        yield PARTIAL.at(Place(path), "a copy or download was cut here: finish it, then remove this file")
    elif is_pointer(path):
        yield LFS.at(Place(path, 1), "this is Git LFS's pointer, not the file: run `git lfs pull`")


def _beside(model: Model, folder: Path, name: str) -> Iterator[Finding]:
    backend = BACKENDS.get(model.backend)
    needed = backend.beside.get(name) if backend else None
    if model.backend == "openvino" and name.endswith(".xml"):
        needed = f"{Path(name).stem}.bin"
    if needed and not is_there(folder / needed):
        yield HALF_COPIED.at(Place(folder / name), f"{needed} must lie beside {name}, and is not there: copy it too")
    if name == "model.savedmodel" and not (folder / name / "saved_model.pb").exists():
        yield HALF_COPIED.at(Place(folder / name), "this SavedModel has no saved_model.pb: copy the whole folder")


def _main_file(model: Model, version: int, file: Path) -> Iterator[Finding]:
    if model.backend == "onnxruntime":
        yield from _onnx(model, version)
    elif not file.is_file() or any(True for _ in _file(file)):
        return
    elif not file.stat().st_size:
        severity = Severity.WARNING if file.suffix == ".py" else None
        yield EMPTY.at(Place(file), f"{file.name} is empty: copy it again", severity)
    elif file.suffix == ".py" and model.backend == "python":
        yield from _python(file)


def _onnx(model: Model, version: int) -> Iterator[Finding]:
    file, opened = model.onnx_file(version), model.opened(version)
    if any(True for _ in _file(file)):
        return
    if isinstance(opened, OSError):
        yield NOT_ONNX.at(Place(file), f"{file.name} cannot be read: {opened.strerror or opened}")
    elif isinstance(opened, NotOnnx):
        yield NOT_ONNX.at(
            Place(file), f"{file.name} cannot be read as an ONNX model: {opened}. Export or copy it again{_looks(file)}"
        )
    elif opened is not None:
        yield from _external(file, opened)


def _looks(file: Path) -> str:
    head = file.read_bytes()[:64] if is_file(file) and file.stat().st_size < 2**26 else b""
    if head.lstrip()[:1] == b"<":
        return " (it looks like a web page: the download needs a login, or another address)"
    if head.startswith(b"PK"):
        return " (it looks like a zip archive, as TorchScript is: that is model.pt for backend pytorch)"
    return ""


def _external(file: Path, graph: Graph) -> Iterator[Finding]:
    needed: dict[str, int] = {}
    for tensor in graph.initializers.values():
        if tensor.external is not None:
            end = tensor.external.offset + tensor.external.length
            needed[tensor.external.location] = max(end, needed.get(tensor.external.location, 0))
    for location, size in sorted(needed.items()):
        data = file.parent / location
        if not is_file(data):
            yield EXTERNAL.at(Place(file), f"its weights are in {location}, which is not beside it: copy that file too")
        elif data.stat().st_size < size:
            yield EXTERNAL.at(
                Place(data),
                f"{file.name} needs {size:,} bytes of it, and it has {data.stat().st_size:,}: copy it again",
            )


def _python(file: Path) -> Iterator[Finding]:
    code = file.read_bytes()
    try:
        ast.parse(code, str(file))
    except SyntaxError as exc:
        yield PYTHON.at(Place(file, exc.lineno or 1), f"Python cannot compile it: {exc.msg}")
        return
    except ValueError as exc:
        yield PYTHON.at(Place(file, 1), f"Python cannot compile it: {exc}")
        return
    except (RecursionError, MemoryError):  # the parser says either
        yield PYTHON.at(Place(file, 1), "Python cannot compile it: its expressions are nested too deep")
        return
    if b"TritonPythonModel" not in code and b"import *" not in code:
        yield PYTHON.at(
            Place(file, 1), "it has no class TritonPythonModel, which the Python backend looks for", Severity.WARNING
        )


def _sibling(model: Model, version: int, names: Sequence[str]) -> Iterator[Finding]:
    """A file that the version before has and that this version's own code names."""
    earlier = [other for other in model.versions if other < version]
    if not earlier or not names:
        return
    lost = set(model.files(earlier[-1])) - set(model.files(version))
    texts = [
        file for name in names if (file := model.version_folder(version) / name).suffix in (".py", ".json", ".yaml")
    ]
    for name in sorted(each for each in lost if not _NOISE.fullmatch(each)):
        quoted = (f'"{name}"'.encode(), f"'{name}'".encode(), f"/{name}".encode())
        for text in texts:
            if text.is_file() and text.stat().st_size < 2**20 and any(each in text.read_bytes() for each in quoted):
                yield HALF_COPIED.at(
                    Place(model.version_folder(version)),
                    f"{text.name} names {name}, which {model.name}/{earlier[-1]}/ has and {model.name}/{version}/ "
                    "has not: copy it",
                )
                break
