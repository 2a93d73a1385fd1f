"""The catalogue: every public model, declared once, in `zoo.yaml`.

The router, the CLI, the tests and the demo read this file's models from here; nobody else keeps a list.
A bad file fails at load, naming the line and the field.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

__all__ = [
    "Catalogue",
    "CatalogueError",
    "ChunkTokens",
    "Limits",
    "LongText",
    "Modality",
    "Model",
    "ModelNotEnabled",
    "Prompts",
    "SloClass",
    "Task",
    "UnknownModel",
    "line_of",
    "load_catalogue",
]

Task = Literal["embed", "rerank", "classify", "rag_query", "sparse", "chat"]
SloClass = Literal["interactive", "bulk"]
Modality = Literal["text", "image", "file"]


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

    def __init__(self, name: str, model: "Model") -> None:
        super().__init__(name, [])
        self.model = model


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(_Entry):
    """What one request may bring."""

    max_tokens: Annotated[int, Field(gt=0)]
    """Tokens of one text, special tokens counted: for chat, prompt and answer together.

    For an image or a file: what each counts for in admission.
    """
    max_items: Annotated[int, Field(gt=0)] = 1
    """Texts of one request (documents, for rerank)."""
    max_request_tokens: Annotated[int, Field(gt=0)] = 300_000
    """Tokens of one request, all its texts together."""
    max_completion_tokens: Annotated[int, Field(gt=0)] | None = None
    """Chat: what an answer is clamped to, and gets when the caller names no bound."""


class ChunkTokens(_Entry):
    """How many tokens one request to Triton may have, rows times their padded length, per SLO class."""

    interactive: Annotated[int, Field(gt=0)] = 4096
    """16 texts of 256 tokens: what the interactive encoder runs at once."""
    bulk: Annotated[int, Field(gt=0)] = 2048
    """Four runs of the bulk encoder: a long list comes back to the queue after each, and a slow chunk blocks less."""

    def of(self, slo_class: SloClass) -> int:
        """The tokens of this class."""
        return self.interactive if slo_class == "interactive" else self.bulk


class Prompts(_Entry):
    """What the model was trained to see before a text, by what the text is: the request's `input_type`."""

    query: str
    passage: str


class LongText(_Entry):
    """How texts longer than the model reads are embedded, for requests that opt in."""

    triton: Mapping[SloClass, str]
    """The Triton model per SLO class that averages the vectors of a text's windows."""
    max_tokens: Annotated[int, Field(gt=0)]
    """Tokens of one text, special tokens counted once."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if "interactive" not in self.triton:
            raise ValueError("triton needs an `interactive` model")
        return self

    def triton_model(self, slo_class: SloClass) -> str:
        """The Triton model for this class."""
        return self.triton.get(slo_class) or self.triton["interactive"]


class Model(_Entry):
    """One public model: what it is called, what it takes, and where it runs."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    task: Task
    modality: Modality = "text"
    """Classify: what it takes. An image or a file is a content part here, and bytes in Triton."""
    runs_on: Literal["zoo", "leaf"]
    triton: Mapping[SloClass, str]
    """The Triton model per SLO class: an ensemble in the zoo, a decoupled model on the leaf."""
    encoder: Mapping[SloClass, str] | None = None
    """The Triton model that takes token ids, for callers who bring their own tokens."""
    tokenizer: str | None = None
    """tokenizer.json (classify: vocabulary.json), relative to the model repository: the router counts with it."""
    chat_template: str | None = None
    """Jinja template, relative to the model repository."""
    default_system_prompt: str | None = None
    """Chat: put in front when the caller sends no system message."""
    aliases: tuple[str, ...] = ()
    version: Annotated[int, Field(gt=0)] = 1
    required: bool = False
    """The router is ready only when every required model is."""
    optional: bool = False
    """Runs only where ZOOSERVE_MODELS asks for it."""
    buckets: tuple[int, ...] = ()
    """The lengths that the tokenizer stage pads to, in tokens; each is warmed and probed."""
    chunk_rows: Annotated[int, Field(gt=0)] = 32
    """Texts that the router puts into one request to Triton."""
    chunk_tokens: ChunkTokens = ChunkTokens()
    """Tokens, padding counted, that the router puts into one request to Triton."""
    limits: Limits
    best_score: Annotated[float, Field(gt=0)] = 1.0
    """Rerank: the score that is a relevance of 1. A probability reaches 1; late interaction, two cosines, reaches 2."""
    prompts: Prompts | None = None
    """Embed: the router writes one before every text, and counts it. Token ids go as they are."""
    long_text: LongText | None = None
    """Embed: takes longer texts where the request says `long_text: "mean"`; without this none may."""
    dimensions: int | None = None
    labels: tuple[str, ...] = ()
    labels_file: str | None = None
    """The labels, a line each, in a file relative to the model repository, where they come with the weights."""
    exclusive: bool = False
    """Classify: one label is true, so that the probabilities add up to 1; else each is its own."""
    kv_bytes_per_token: int | None = None
    kv_budget_tokens: int | None = None
    """Chat: prompt and granted answer tokens that may be in flight on the leaf."""
    licence: str
    source: str
    description: str = ""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if "interactive" not in self.triton:
            raise ValueError("triton needs an `interactive` model")
        if self.task == "classify" and not (self.labels or self.labels_file):
            raise ValueError("a classify model needs `labels` or a `labels_file`")
        if self.task != "classify" and self.modality != "text":
            raise ValueError(f"a model of task {self.task} takes text; only classify models take anything else")
        if self.task in ("embed", "rag_query", "sparse") and self.dimensions is None:
            raise ValueError(f"a model of task {self.task} needs `dimensions`")
        if self.long_text is not None and self.task != "embed":
            raise ValueError("only an embed model can have `long_text`")
        if self.long_text is not None and self.long_text.max_tokens <= self.limits.max_tokens:
            raise ValueError("`long_text.max_tokens` must be above `limits.max_tokens`")
        if self.task == "chat" and (self.tokenizer is None or self.chat_template is None):
            raise ValueError("a chat model needs `tokenizer` and `chat_template`")
        if self.task == "chat" and self.kv_budget_tokens is None:
            raise ValueError("a chat model needs `kv_budget_tokens`")
        return self

    def triton_model(self, slo_class: SloClass) -> str:
        """The Triton model for this class; a model without a bulk twin serves bulk from the interactive one."""
        return self.triton.get(slo_class) or self.triton["interactive"]

    def triton_models(self) -> list[str]:
        """Every Triton model that it names, each once."""
        long_text = self.long_text.triton if self.long_text is not None else {}
        return list(dict.fromkeys((*self.triton.values(), *(self.encoder or {}).values(), *long_text.values())))

    def encoder_model(self, slo_class: SloClass) -> str | None:
        """The Triton model that takes token ids for this class, if there is one."""
        if self.encoder is None:
            return None
        return self.encoder.get(slo_class) or self.encoder["interactive"]


class _File(_Entry):
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
        """The model behind a name, an alias or `name@version`.

        Raises ModelNotEnabled, or UnknownModel with the nearest names when there is none.
        """
        name, at, pin = wanted.partition("@")
        if model := _named(name, self.models):
            if at and pin != str(model.version):
                raise UnknownModel(wanted, [f"{model.name}@{model.version}"])
            return model
        if model := _named(name, self.disabled):
            raise ModelNotEnabled(wanted, model)
        raise UnknownModel(wanted, _nearest(name, self.names()))

    def labelled(self, repository: Path) -> "Catalogue":
        """The same with the labels of their files; a model whose file is not there has none, and is not ready."""
        return replace(self, models=tuple(_labelled(model, repository) for model in self.models))

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
