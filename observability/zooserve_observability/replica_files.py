"""The folder in which every process of a platform keeps its series (prometheus_client's multiprocess mode), as a page.

prometheus_client leaves the files of a process that is gone for ever: its counters count on, as they should, but each
replica that ever died makes every scrape dearer. So the counters and histograms of the dead are folded into one file
each. Whoever reads holds a lock meanwhile, and a fold that is interrupted anywhere is finished by the next reader:
nothing is lost, nothing counts twice.
"""

import fcntl
import logging
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest, values
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from zooserve.processes.identity import find

__all__ = ["make_room", "page"]

_KINDS = ("counter", "histogram")
_PAST = "past"
"""Stands where other files have the pid: of all processes that are gone."""
_NAMES = "names"
_BYTES = {"counter": 2**19, "histogram": 2**20, "gauge": 2**16}
"""Of a process's file of each kind: more than twice what the whole catalogue takes."""
_HEAD_BYTES, _MOST_BESIDE_KEY_BYTES = 8, 28
"""Of prometheus_client's files: what stands before all, and what with each key."""
_log = logging.getLogger(__name__)


def make_room(folder: Path, *kinds: str) -> None:
    """Give the files of this process's series, such as `counter` and `gauge_livesum`, their room on the disk.

    prometheus_client makes them of nothing but holes, and the kernel ends whoever fills one on a full disk (SIGBUS).
    Without room for them this process serves on, and is not counted.
    """
    if values.ValueClass is values.MutexValue:
        return  # it shares nothing
    try:
        for kind in kinds:
            _make(folder / f"{kind}_{os.getpid()}.db", _BYTES[kind.partition("_")[0]])
    except OSError as exc:
        _log.warning("there is no room in %s for what this process counts: it is left out (%s)", folder, exc.strerror)
        values.ValueClass = values.MutexValue


def _make(file: Path, size: int) -> None:
    """An empty file with that much room; nobody sees one that has none yet."""
    if file.exists():
        return
    new = file.with_suffix(".new")
    try:
        with new.open("wb") as made:
            os.posix_fallocate(made.fileno(), 0, size)
        new.rename(file)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def page(folder: Path) -> bytes:
    """Everything in Prometheus' text format, over all processes that live or have lived."""
    with _locked(folder):
        _finish(folder / "folded", folder)
        _forget_gauges(folder)
        _fold(folder)
        whole = CollectorRegistry()
        MultiProcessCollector(whole, path=str(folder))  # type: ignore[no-untyped-call]
        return generate_latest(whole)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One reader at a time, of all processes. The kernel frees the lock of one that is killed."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _forget_gauges(folder: Path) -> None:
    """Drop the gauges of processes that are gone: what a killed one had in flight would count for ever."""
    for file in _of_the_dead(folder.glob("gauge_live*_*.db")):
        mark_process_dead(_pid(file), str(folder))  # type: ignore[no-untyped-call]


def _fold(folder: Path) -> None:
    """Add the dead's counters to those of the dead before them."""
    dead = [*_of_the_dead(file for kind in _KINDS for file in folder.glob(f"{kind}_*.db"))]
    if not dead:
        return
    new, folded = folder / "folding", folder / "folded"
    try:
        _add_up(dead, folder, new)
    except OSError as exc:  # a full disk: they are read one by one
        _log.debug("the counters of %d dead processes could not be added up: %s", len(dead), exc)
        return
    new.rename(folded)  # from here on it is done, whoever finishes it
    _finish(folded, folder)


def _add_up(dead: Sequence[Path], folder: Path, new: Path) -> None:
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    for kind in _KINDS:
        past = _past(folder, kind)
        _write_sum(
            [*([past] if past.exists() else []), *(file for file in dead if _kind(file) == kind)], _past(new, kind)
        )
    (new / _NAMES).write_text("\n".join(file.name for file in dead))


def _finish(folded: Path, folder: Path) -> None:
    """Put a fold in the place of what it was made of. May be interrupted and done again."""
    if not folded.exists():
        return
    names = folded / _NAMES
    for name in names.read_text().split() if names.exists() else ():
        (folder / name).unlink(missing_ok=True)
    for kind in _KINDS:
        if (made := _past(folded, kind)).exists():
            made.rename(_past(folder, kind))
    shutil.rmtree(folded)


def _write_sum(files: Iterable[Path], target: Path) -> None:
    totals: defaultdict[str, float] = defaultdict(float)
    for file in files:
        if not file.stat().st_size:  # its process was killed while it made it
            continue
        for key, value, _, _ in MmapedDict.read_all_values_from_file(str(file)):  # type: ignore[no-untyped-call]
            totals[key] += value
    _make(target, _HEAD_BYTES + sum(len(key.encode()) + _MOST_BESIDE_KEY_BYTES for key in totals))
    made = MmapedDict(str(target))  # type: ignore[no-untyped-call]
    for key, value in totals.items():
        made.write_value(key, value, 0.0)  # type: ignore[no-untyped-call]
    made.close()  # type: ignore[no-untyped-call]


def _of_the_dead(files: Iterable[Path]) -> Iterator[Path]:
    for file in files:
        if not file.stem.endswith(f"_{_PAST}") and find(_pid(file)) is None:
            yield file


def _pid(file: Path) -> int:
    return int(file.stem.rpartition("_")[2])


def _kind(file: Path) -> str:
    return file.stem.partition("_")[0]


def _past(folder: Path, kind: str) -> Path:
    return folder / f"{kind}_{_PAST}.db"
