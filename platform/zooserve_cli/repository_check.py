"""The checker with what the settings know: which repository is the zoo, and which of its files are fetched."""

from pathlib import Path

from zooserve.settings import Settings
from zooserve.weights.lock import load_lock
from zooserve_ensembles.checking import Report, Target, check_repository

__all__ = ["checked"]


def checked(settings: Settings, directory: Path | None = None, target: str | None = None) -> Report:
    """The findings in a Triton repository, the zoo if no directory is given."""
    root = directory or _shown(settings.zoo_repository)
    return check_repository(root, Target(target) if target else None, _fetched(settings))


def _shown(root: Path) -> Path:
    """Relative to the working directory where it lies below it: what is printed can then be clicked on."""
    return root.relative_to(Path.cwd()) if root.is_relative_to(Path.cwd()) else root


def _fetched(settings: Settings) -> set[Path]:
    """What `zooserve fetch` places in the zoo, relative to it."""
    if not settings.weights_lock.is_file():
        return set()
    lock = load_lock(settings.weights_lock)
    targets = [target for _, file in lock.files() for target in file.place]
    targets += [target for build in lock.builds for target in build.place]
    zoo = settings.zoo_repository.name
    return {Path(target).relative_to(zoo) for target in targets if Path(target).parts[0] == zoo}
