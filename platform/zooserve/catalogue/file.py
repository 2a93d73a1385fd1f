"""The catalogue file: read, checked, and found by name, alias or version.

A bad file fails at load, naming the line and the field.
"""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from zooserve.catalogue.agreement import contradictions
from zooserve.catalogue.entry import Entry
from zooserve.catalogue.model import Model, Task

__all__ = ["Catalogue", "CatalogueError", "ModelNotEnabled", "UnknownModel", "line_of", "load_catalogue"]

_LONGEST_NAME = 100
"""Of a wanted name that is looked at for its likeness: comparing megabytes takes seconds."""


class CatalogueError(ValueError):
    """The catalogue file cannot be used; the message names the file, the line and the field."""


class UnknownModel(KeyError):
    """No model, alias or version of this name; `nearest` are the names that look most like it."""

    def __init__(self, name: str, nearest: list[str]) -> None:
        super().__init__(name)
        self.name = name
        self.nearest = nearest


class ModelNotEnabled(UnknownModel):
    """The catalogue has this model, under `model.name`, and the settings do not enable it."""

    def __init__(self, name: str, model: Model) -> None:
        super().__init__(name, [])
        self.model = model


class _File(Entry):
    models: tuple[Model, ...]


@dataclass(frozen=True)
class Catalogue:
    """The enabled models of one file, found by name, alias or `name@version`, and those that are not enabled."""

    models: tuple[Model, ...]
    disabled: tuple[Model, ...] = ()

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models)

    def names(self) -> list[str]:
        """Every name and alias, in the file's order."""
        return [name for model in self.models for name in (model.name, *model.aliases)]

    def of_task(self, task: Task) -> list[Model]:
        """The models of one task, in the file's order; the first is the task's default."""
        return [model for model in self.models if model.task == task]

    def resolve(self, wanted: str) -> Model:
        """The model behind a name, an alias, `name:adapter`, or any of them with `@version`: that one alone, then.

        Raises ModelNotEnabled, or UnknownModel with the nearest names when there is none.
        """
        name, at, pin = wanted.partition("@")
        if model := _named(name, self.models) or self._with_adapter(name):
            if at and pin != str(model.version):
                raise UnknownModel(wanted, [f"{model.public_name}@{model.version}"])
            return model.alone() if at else model
        if model := _named(name, self.disabled) or _named(name.partition(":")[0], self.disabled):
            raise ModelNotEnabled(wanted, model)
        raise UnknownModel(wanted, _nearest(name, self.names()))

    def _with_adapter(self, name: str) -> Model | None:
        """The model of `model:adapter`. Raises UnknownModel where it has no such adapter."""
        base, colon, adapter = name.rpartition(":")
        model = _named(base, self.models) if colon else None
        if model is None:
            return None
        adapters = model.chat_backend.lora if model.task == "chat" else {}
        if adapter not in adapters:
            near = [f"{model.name}:{one}" for one in _nearest(adapter, list(adapters))]
            raise UnknownModel(name, near or [model.name])
        return model.with_adapter(adapter)

    def labelled(self, repository: Path) -> "Catalogue":
        """The same with the labels of their files; a model whose file is not there has none, and is not ready.

        Raises CatalogueError for a canary with other labels than the model whose requests it answers.
        """
        labelled = tuple(_labelled(model, repository) for model in self.models)
        _refuse_other_labels(labelled)
        return replace(self, models=labelled)

    def enabling(self, wanted: str) -> "Catalogue":
        """The same models, enabled as ZOOSERVE_MODELS says: a list of names with commas, `default` or `all` among them.

        Raises CatalogueError with the nearest names for one that the file does not have.
        """
        everything = (*self.models, *self.disabled)
        sets = {"all": everything, "default": tuple(model for model in everything if not model.optional)}
        chosen: list[Model] = []
        for word in filter(None, (word.strip() for word in wanted.split(","))):
            if word in sets:
                chosen += sets[word]
            elif model := _named(word, everything):
                chosen.append(model)
            else:
                raise CatalogueError(_not_in_file(word, everything))
        if not chosen:
            raise CatalogueError("ZOOSERVE_MODELS names no model: say `default`, `all`, or names with commas between.")
        return Catalogue(
            models=tuple(model for model in everything if model in chosen),
            disabled=tuple(model for model in everything if model not in chosen),
        )


def _labelled(model: Model, repository: Path) -> Model:
    if model.labels_file is None:
        return model
    try:
        labels = tuple((repository / model.labels_file).read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError):
        return model
    return model.model_copy(update={"labels": labels})


def _refuse_other_labels(models: tuple[Model, ...]) -> None:
    for model in models:
        canary = model.releases and model.releases.canary and _named(model.releases.canary.model, models)
        if canary and canary.labels and model.labels and canary.labels != model.labels:
            raise CatalogueError(
                f"{canary.name}, the canary of {model.name}, has other labels in its {canary.labels_file}: callers "
                "could not tell whose they got. Take it out of the `releases` of the catalogue."
            )


def _named(name: str, models: Iterable[Model]) -> Model | None:
    return next((model for model in models if name == model.name or name in model.aliases), None)


def _nearest(name: str, names: list[str]) -> list[str]:
    return difflib.get_close_matches(name[:_LONGEST_NAME], names, n=3, cutoff=0.3)


def _not_in_file(word: str, models: Iterable[Model]) -> str:
    names = [model.name for model in models]
    nearest = " or ".join(_nearest(word, names))
    advice = f"Did you mean {nearest}?" if nearest else f"It has {', '.join(names)}."
    return f"ZOOSERVE_MODELS names {word[:_LONGEST_NAME]!r}, which the catalogue does not have. {advice}"


def load_catalogue(path: Path) -> Catalogue:
    """Read and check a catalogue file. Raises CatalogueError naming file, line and field."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        document = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise CatalogueError(
            f"{path}: cannot be read ({exc.strerror}). Run from the checkout, or set ZOOSERVE_CATALOGUE."
        ) from exc
    except UnicodeDecodeError as exc:
        raise CatalogueError(f"{path}: not UTF-8 (byte {exc.start})") from exc
    except YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise CatalogueError(f"{path}{line}: not valid YAML: {getattr(exc, 'problem', None) or exc}") from exc
    try:
        parsed = _File.model_validate(document)
    except ValidationError as exc:
        raise CatalogueError(_first_fault(path, document, exc)) from exc
    _refuse_duplicates(path, document, parsed.models)
    for location, message in contradictions(parsed.models):
        where = ".".join(map(str, location))
        raise CatalogueError(f"{path}:{line_of(document, location)}: {where}: {message}")
    return Catalogue(parsed.models)


def _first_fault(path: Path, document: Any, exc: ValidationError) -> str:
    fault = exc.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"]) or "(top level)"
    return f"{path}:{line_of(document, fault['loc'])}: {where}: {fault['msg']}"


def line_of(node: Any, loc: tuple[int | str, ...]) -> int:
    """The 1-based line of the deepest part of `loc` that the document really has."""
    line = 1
    for part in loc:
        marks = getattr(node, "lc", None)
        if marks is None:
            return line
        line = int(marks.line) + 1
        try:
            position = marks.item(part) if isinstance(part, int) else marks.key(part)
            line = int(position[0]) + 1
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return line
    return line


def _refuse_duplicates(path: Path, document: Any, models: tuple[Model, ...]) -> None:
    owners: dict[str, str] = {}
    for index, model in enumerate(models):
        for name in (model.name, *model.aliases):
            if name in owners:
                line = line_of(document, ("models", index, "name"))
                raise CatalogueError(f"{path}:{line}: models.{index}: {name!r} is already taken by {owners[name]!r}")
            owners[name] = model.name
