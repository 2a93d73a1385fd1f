"""Rules that only our zoo keeps: what is rendered stays as rendered, every stage is warm before it serves."""

from collections.abc import Iterator

from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.repository import Model, Repository
from zooserve_ensembles.families import FAMILIES
from zooserve_ensembles.family import generated_members
from zooserve_ensembles.folders import Files
from zooserve_ensembles.rendering import is_rendered, rendered_files

__all__ = ["RULES", "house_findings"]

EDITED = Rule(
    "edited-after-rendering", Severity.ERROR, "A rendered file was edited by hand, or its definition was not rendered"
)
ORPHAN = Rule("rendered-without-definition", Severity.ERROR, "A rendered model has no definition any more")
COLD = Rule("warmup-missing", Severity.ERROR, "A stage of our zoo has no warm-up, or none of a bucket")
NOT_FETCHED = Rule(
    "not-fetched",
    Severity.WARNING,
    "No weights that `zooserve fetch` places are there; a note where only some models have none",
)
HALF_FETCHED = Rule(
    "half-fetched", Severity.ERROR, "A model has some of the files that `zooserve fetch` places, and not all"
)

RULES = (EDITED, ORPHAN, COLD, NOT_FETCHED, HALF_FETCHED)


def house_findings(repository: Repository) -> Iterator[Finding]:
    """What only a repository of ours can break."""
    if not repository.is_house:
        return
    yield from _edited(repository, rendered_files())
    yield from _not_fetched(repository)
    buckets = {member.name: member.buckets for member in generated_members(FAMILIES)}
    for model in repository.stages:
        yield from _cold(model, buckets.get(model.name, ()), is_step=any(repository.users(model.name)))


def _edited(repository: Repository, rendered: Files) -> Iterator[Finding]:
    ours = {folder.name for folder in repository.root.iterdir() if is_rendered(folder)}
    for path, wanted in rendered.items():
        file = repository.root / path
        if path.parts[0] not in ours or path.name == ".gitkeep":
            continue  # that one only makes git keep a folder, whose absence another rule tells
        if not file.is_file():
            yield EDITED.at(Place(file), "this file is rendered and not there: run `zooserve ensembles render`")
        elif (found := file.read_bytes()) != wanted:
            yield EDITED.at(
                Place(file, _first_difference(found, wanted)),
                "this was edited by hand after rendering, or its definition changed since: change the definition in "
                "zooserve_ensembles/families, then run `zooserve ensembles render`",
            )
    for name in sorted(ours - {path.parts[0] for path in rendered}):
        yield ORPHAN.at(
            Place(repository.root / name / "config.pbtxt", 1),
            f"{name} was rendered from a definition that is no more: remove its folder, or this line if it is yours",
        )


def _not_fetched(repository: Repository) -> Iterator[Finding]:
    """One finding for everything; but a model with some of its files and not all of them is half-copied."""
    wanted = sorted(path for path in repository.fetched if path.parts[0] in repository.models)
    missing = [path for path in wanted if not (repository.root / path).is_file()]
    begun = {path.parts[0] for path in wanted} & {path.parts[0] for path in set(wanted) - set(missing)}
    for path in missing:
        if path.parts[0] in begun:
            yield HALF_FETCHED.at(
                Place(repository.root / path),
                f"this file is not there, while other files of {path.parts[0]} are: run `zooserve fetch`",
            )
    absent = [path for path in missing if path.parts[0] not in begun]
    if absent:
        yield NOT_FETCHED.at(
            Place(repository.root),
            f"{len(absent)} of {len(wanted)} files are not in place, such as {absent[0]}: run `zooserve fetch`",
            Severity.NOTE if begun else None,
        )


def _first_difference(found: bytes, wanted: bytes) -> int:
    lines, others = found.split(b"\n"), wanted.split(b"\n")
    pairs = zip(lines, others, strict=False)
    same = next((index for index, (line, other) in enumerate(pairs) if line != other), min(len(lines), len(others)))
    return min(same + 1, len(lines))


def _cold(model: Model, buckets: tuple[int, ...], *, is_step: bool) -> Iterator[Finding]:
    config = model.config
    if not config.model_warmup and is_step:
        yield COLD.at(
            model.source.place("name"), f"{model.name} has no model_warmup: its first request would pay for it"
        )
        return
    for index, tensor in enumerate(config.input):
        if -1 not in tensor.dims:
            continue
        axis = list(tensor.dims).index(-1)
        warmed = {
            sample.inputs[tensor.name].dims[axis]
            for sample in config.model_warmup
            if tensor.name in sample.inputs and len(sample.inputs[tensor.name].dims) > axis
        }
        if missing := sorted(set(buckets) - warmed):
            yield COLD.at(
                model.source.place(("input", index)), f"no warm-up of {tensor.name} at {', '.join(map(str, missing))}"
            )
