"""Rules of what is written: into a volume where it has to last, and somewhere at all where a container is read-only."""

import re
from collections.abc import Iterator
from pathlib import Path

from zooserve_cli.stack.environment import told, told_nodes
from zooserve_cli.stack.invocation import OURS, Invocation, invocations
from zooserve_cli.stack.listening import configuration, configured
from zooserve_cli.stack.recorded import Data, Program
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack
from zooserve_ensembles.checking.findings import Finding, Rule, Severity

__all__ = ["RULES", "data_findings"]

LOST = Rule(
    "data-not-kept",
    Severity.ERROR,
    "A program keeps its data where its container has no volume; a warning where it starts all the same",
)
UNWRITABLE = Rule(
    "not-writable", Severity.ERROR, "A read-only container is told to write where it has no mount, no tmpfs"
)

RULES = (LOST, UNWRITABLE)

_FOLDERS = (
    "HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "MPLCONFIGDIR",
    "NUMBA_CACHE_DIR",
    "RAY_TMPDIR",
    "TMPDIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "VLLM_CACHE_ROOT",
    "XDG_CACHE_HOME",
    "ZOOSERVE_CACHE_DIR",
    "ZOOSERVE_STATE_DIR",
)
_FILES = ("QDRANT_INIT_FILE_PATH",)
"""Variables of folders and files that their programs write."""
_HOMES = ("/home/vllm", "/root")
"""Of vLLM's image: of its own user, and of root."""
_CACHE = re.compile(r'key:\s*"\w*path"\s*value:\s*"(/[^"]+)"')


def data_findings(stack: Stack) -> Iterator[Finding]:
    """Every folder that a known program writes into."""
    for service in stack.services.values():
        calls = invocations(stack, service)
        for call in calls:
            if (program := stack.programs.get(call.program)) is not None:
                yield from _kept(stack, service, call, program)
        if service.node["read_only"].is_true:
            yield from _told(stack, service)
            for call in calls:
                yield from _written(stack, service, call)


def _kept(stack: Stack, service: Service, call: Invocation, program: Program) -> Iterator[Finding]:
    for data in program.data:
        path = _path(stack, service, call, program, data)
        mount = service.at_path(path)
        if not path.startswith("/") or (mount is not None and mount.kind != "tmpfs" and not mount.is_read_only):
            continue
        starts = service.can_write(path) or not service.node["read_only"].is_true
        why = "which is lost with the container" if starts else "where the container is read-only"
        severity = Severity.WARNING if starts else None
        yield LOST.at(service.place, f"{service.name} keeps its data in {path}, {why}: mount a volume there", severity)


def _path(stack: Stack, service: Service, call: Invocation, program: Program, data: Data) -> str:
    flag = call.flag(data.flag) if data.flag else None
    variable = told(stack, service).get(data.env, "") if data.env else ""
    written = configured(configuration(stack, service, program, call), data.config)
    return (flag.text if flag else "") or variable or written or data.path


def _told(stack: Stack, service: Service) -> Iterator[Finding]:
    for name, node in told_nodes(stack, service).items():
        path = node.text.rpartition("/")[0] if name in _FILES else node.text
        if name in (*_FOLDERS, *_FILES) and path.startswith("/") and not service.can_write(path):
            yield UNWRITABLE.at(
                node.place, f"{service.name} is read-only at {path} ({name}): mount a volume or a tmpfs there"
            )


def _written(stack: Stack, service: Service, call: Invocation) -> Iterator[Finding]:
    if call.program == OURS and call.subcommand[:1] in (("route",), ("triton",), ("up",), ("fetch",)):
        paths = {"/tmp"}  # noqa: S108  the container's
    elif call.program == "tritonserver" and call.flag("--model-config-name") is not None:
        paths = _caches(stack, service, call)
    elif call.program == "vllm" and not any(service.can_write(f"{home}/.cache") for home in _HOMES):
        paths = set() if "HF_HOME" in told(stack, service) else {f"{_HOMES[0]}/.cache"}
    else:
        return
    for path in sorted(paths):
        if not service.can_write(path):
            yield UNWRITABLE.at(call.place, f"{service.name} writes to {path}: mount a volume or a tmpfs there")


def _caches(stack: Stack, service: Service, call: Invocation) -> set[str]:
    """The folders that variants of the models put engines and timings into: which one runs is an env file's matter."""
    repository = call.flag("--model-repository") or call.flag("--model-store")
    folder = stack.on_host(service, repository.text) if repository is not None else None
    files = folder.glob("*/configs/*.pbtxt") if folder is not None else ()
    return {path for file in files for path in _CACHE.findall(_text(file))}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
