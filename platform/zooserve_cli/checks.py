"""What a machine must have before the platform can run on it, and how to mend what it lacks."""

import ctypes.util
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zooserve.catalogue import Catalogue, CatalogueError, load_catalogue
from zooserve.errors import PortTaken, SetupError, ZooserveError
from zooserve.processes.ports import require_free
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings, secret
from zooserve.triton.installation import find_libpython, find_stub
from zooserve.weights.lock import folder_of, load_lock
from zooserve_cli.fetch import unwanted_folders

__all__ = ["Check", "all_checks", "faults_before_start"]

_GIB = 2**30
_DISK_BYTES = 2 * _GIB
_SHM_BYTES = _GIB // 4
_MEMORY_BYTES = 3 * _GIB
_SHOWN = 5
"""Findings in the zoo's repository that are told at once."""
_SHM = Path("/dev/shm")  # noqa: S108 (where the kernel keeps shared memory)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `mend` says what to do where it is not `ok`."""

    name: str
    ok: bool
    found: str
    mend: str = ""


def faults_before_start(settings: Settings) -> list[Check]:
    """What would certainly stop a start; weights are fetched and ports chosen, so they are not among it."""
    return [check for check in _machine(settings) if not check.ok]


def all_checks(settings: Settings) -> list[Check]:
    """Every check, in the order to mend them in."""
    state = StateFolder(settings.state_dir).read_state()
    ports = [] if state is not None and state.is_running else _ports(settings)
    catalogue = [_catalogue(settings), *_engine(settings), *_keys(settings)]
    return [*_machine(settings), *catalogue, _repository(settings), *_weights(settings), *ports]


def _machine(settings: Settings) -> list[Check]:
    return [
        _python(),
        _found("shared libpython", find_libpython),
        _found("tritonserver", find_stub),
        _libgomp(),
        _free_disk("disk for downloads and weights", settings.cache_dir),
        _free_disk("disk for logs", settings.state_dir),
        _free_disk(
            "shared memory",
            _SHM,
            _SHM_BYTES,
            "Give it more: mount -o remount,size=1g /dev/shm; for a container, --shm-size=1g.",
        ),
        _memory(),
        _sockets(settings),
    ]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    ok = (3, 11) <= sys.version_info[:2] <= (3, 12)
    return Check("Python", ok, version, "Use Python 3.11 or 3.12: make PYTHON=python3.12 up.")


def _found(name: str, find: Callable[[], Path]) -> Check:
    try:
        return Check(name, True, str(find()))
    except ZooserveError as exc:
        return Check(name, False, "missing", str(exc))


def _libgomp() -> Check:
    name = ctypes.util.find_library("gomp")
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        return Check("libgomp", False, "missing", "The chat engine needs it. Debian, Ubuntu: apt-get install libgomp1.")
    return Check("libgomp", True, name or "libgomp.so.1")


def _free_disk(name: str, path: Path, least: int = _DISK_BYTES, mend: str = "Free some space there.") -> Check:
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    found = f"{free / _GIB:.1f} GiB free at {existing}"
    return Check(name, free >= least, found, f"{least / _GIB:.2g} GiB are needed. {mend}")


def _memory() -> Check:
    available = _available_memory()
    found = f"{available / _GIB:.1f} GiB available"
    mend = f"About {_MEMORY_BYTES / _GIB:.0f} GiB are needed for both Tritons, Ray and the models: end something else."
    return Check("memory", available >= _MEMORY_BYTES, found, mend)


def _available_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _sockets(settings: Settings) -> Check:
    try:
        folder = StateFolder(settings.state_dir).sockets
    except SetupError as exc:
        return Check("unix sockets", False, "path too long", str(exc))
    return Check("unix sockets", True, str(folder))


def _catalogue(settings: Settings) -> Check:
    try:
        catalogue = load_catalogue(settings.catalogue).enabling(settings.models)
    except CatalogueError as exc:
        return Check("catalogue", False, "cannot be used", str(exc))
    enabled, all_of_them = len(catalogue.models), len(catalogue.models) + len(catalogue.disabled)
    return Check("catalogue", True, f"{all_of_them} models in {settings.catalogue}, {enabled} of them enabled")


def _enabled(settings: Settings) -> Catalogue:
    try:
        return load_catalogue(settings.catalogue).enabling(settings.models)
    except CatalogueError:  # told by the check of the catalogue
        return Catalogue(())


def _engine(settings: Settings) -> list[Check]:
    """The file that the platform's own engine serves, where a model runs on it."""
    if all(model.runs_on != "engine" for model in _enabled(settings)):
        return []
    file = settings.repository / settings.engine.gguf
    mend = "Run `zooserve fetch`, or name a GGUF file in ZOOSERVE_ENGINE__GGUF."
    return [Check("model of the engine", file.is_file(), f"{file}{'' if file.is_file() else ' is missing'}", mend)]


def _keys(settings: Settings) -> list[Check]:
    """The keys that upstreams ask for: a model without its key is not ready, while all others serve."""
    upstreams = (model for model in _enabled(settings) if model.runs_on == "upstream")
    names = {model.name: model.chat_backend.key_env for model in upstreams}
    return [_key(model, variable) for model, variable in names.items() if variable is not None]


def _key(model: str, variable: str) -> Check:
    there = secret(variable) is not None
    return Check(f"key of {model}", there, "set" if there else "missing", f"Set {variable} where `zooserve up` runs.")


def _weights(settings: Settings) -> list[Check]:
    try:
        lock = load_lock(settings.weights_lock)
        unwanted = unwanted_folders(settings)
    except ZooserveError as exc:
        return [Check("weights", False, "weights.lock cannot be read", str(exc))]
    except CatalogueError:  # told by the check of the catalogue
        return []
    targets = [target for target in lock.places() if folder_of(target) not in unwanted]
    missing = [target for target in targets if not (settings.repository / target).is_file()]
    found = f"{len(targets)} files in place" if not missing else f"{len(missing)} missing, such as {missing[0]}"
    return [Check("weights", not missing, found, "Run `zooserve fetch`; `zooserve up` does it by itself.")]


def _repository(settings: Settings) -> Check:
    from zooserve_cli.repository_check import checked, told

    try:
        report = checked(settings)
    except ZooserveError as exc:
        return Check("zoo repository", False, "weights.lock cannot be read", str(exc))
    more = "`zooserve ensembles check` tells all of it."
    return Check("zoo repository", report.passes(), report.summary(), "\n      ".join([*told(report)[:_SHOWN], more]))


def _ports(settings: Settings) -> list[Check]:
    wanted = {"ZOOSERVE_PORT": (settings.host, settings.port)}
    for name in ("zoo", "leaf"):
        triton = getattr(settings, name)
        for port in ("http_port", "grpc_port", "metrics_port"):
            if (fixed := getattr(triton, port)) is not None:
                wanted[f"ZOOSERVE_{name.upper()}__{port.upper()}"] = (triton.host, fixed)
    if settings.engine.port is not None:
        wanted["ZOOSERVE_ENGINE__PORT"] = (settings.engine.host, settings.engine.port)
    return [_port(setting, host, port) for setting, (host, port) in wanted.items()]


def _port(setting: str, host: str, port: int) -> Check:
    try:
        require_free(host, port, setting)
    except SetupError as exc:
        return Check(f"port {port}", False, "taken" if isinstance(exc, PortTaken) else "unusable", str(exc))
    return Check(f"port {port}", True, "free")
