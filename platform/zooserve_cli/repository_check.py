"""The checker with what the settings know: which repository is the zoo, and which of its files are fetched."""

import logging
from pathlib import Path

from zooserve.settings import Settings
from zooserve.weights.lock import load_lock
from zooserve_cli.places import shown
from zooserve_ensembles.checking import Report, Severity, Target, check_repository

__all__ = ["checked", "repository_warnings", "told"]


def checked(settings: Settings, directory: Path | None = None, target: str | None = None) -> Report:
    """The findings in a Triton repository, the zoo if no directory is given."""
    root = directory or shown(settings.zoo_repository)
    return check_repository(root, Target(target) if target else None, _fetched(settings))


def told(report: Report) -> list[str]:
    """Errors first, then warnings; notes are left out."""
    by_weight = (Severity.ERROR, Severity.WARNING)
    return [str(finding) for weight in by_weight for finding in report.findings if finding.severity is weight]


def repository_warnings(settings: Settings) -> tuple[str, ...]:
    """What is wrong in the zoo's repository, said in the log before its server starts: the rest of it will serve."""
    log = logging.getLogger("zooserve.supervisor")
    try:
        found = tuple(told(checked(settings)))
    except Exception:  # a file that the checker did not foresee must not keep the others from serving
        log.exception("the zoo's repository could not be checked")
        return ()
    for finding in found:
        log.warning("%s", finding)
    return found


def _fetched(settings: Settings) -> set[Path]:
    """What `zooserve fetch` places in the zoo, relative to it."""
    if not settings.weights_lock.is_file():
        return set()
    lock = load_lock(settings.weights_lock)
    targets = [target for _, file in lock.files() for target in file.place]
    targets += [target for build in lock.builds for target in build.place]
    zoo = settings.zoo_repository.name
    return {Path(target).relative_to(zoo) for target in targets if Path(target).parts[0] == zoo}
