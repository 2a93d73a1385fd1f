"""One public model of the catalogue: what it is called, what it takes, where it runs."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from zooserve.catalogue.backend import Backend
from zooserve.catalogue.entry import Entry
from zooserve.catalogue.kv import KvConfig
from zooserve.catalogue.releases import Releases

__all__ = ["ChunkTokens", "Limits", "LongText", "Modality", "Model", "Prompts", "SloClass", "Task"]

Task = Literal["embed", "rerank", "classify", "rag_query", "sparse", "chat"]
SloClass = Literal["interactive", "bulk"]
Modality = Literal["text", "image", "file"]

_UNDECLARED: Mapping[str, Backend] = MappingProxyType(
    {
        "zoo": Backend(),  # nobody asks a model of another task what it can do
        "leaf": Backend(),
        "engine": Backend(kind="openai", server="llama.cpp"),
        "upstream": Backend(kind="openai"),
    }
)
"""What answers for a model whose entry has no `backend`, by where it runs."""


class Limits(Entry):
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


class ChunkTokens(Entry):
    """How many tokens one request to Triton may have, rows times their padded length, per SLO class."""

    interactive: Annotated[int, Field(gt=0)] = 4096
    """16 texts of 256 tokens: what the interactive encoder runs at once."""
    bulk: Annotated[int, Field(gt=0)] = 2048
    """Four runs of the bulk encoder: a long list comes back to the queue after each, and a slow chunk blocks less."""

    def of(self, slo_class: SloClass) -> int:
        """The tokens of this class."""
        return self.interactive if slo_class == "interactive" else self.bulk


class Prompts(Entry):
    """What the model was trained to see before a text, by what the text is: the request's `input_type`."""

    query: str
    passage: str


class LongText(Entry):
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


class Model(Entry):
    """One public model: what it is called, what it takes, and where it runs."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    task: Task
    modality: Modality = "text"
    """Classify: what it takes. An image or a file is a content part here, and bytes in Triton."""
    runs_on: Literal["zoo", "leaf", "engine", "upstream"]
    """Chat: `leaf` is a Triton of its own, `engine` the platform's own OpenAI server, `upstream` somebody else's."""
    triton: Mapping[SloClass, str] = {}
    """The Triton model per SLO class: an ensemble in the zoo, a decoupled model on the leaf."""
    backend: Backend | None = None
    """Chat: what answers; none: TensorRT-LLM's llmapi contract on the leaf, OpenAI's API elsewhere."""
    adapter: str | None = None
    """Chat: which of the backend's adapters a request chose by naming `model:adapter`; never set in the file."""
    releases: Releases | None = None
    """Other entries that share in its requests. A request that pins `model@version` gets this one alone."""
    release_of: str | None = None
    """The model whose request this one answers as its canary: the router's choice, never set in the file."""
    encoder: Mapping[SloClass, str] | None = None
    """The Triton model that takes token ids, for callers who bring their own tokens."""
    tokenizer: str | None = None
    """tokenizer.json (classify: vocabulary.json), relative to the model repository: the router counts with it."""
    chat_template: str | None = None
    """Jinja template, or the JSON that carries it, relative to the model repository; none: the one beside `tokenizer`.

    It wins over the checkpoint's own.
    """
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
    space: str | None = None
    """Of a model that makes vectors: the entry in whose embedding space they are; none: a space of its own."""
    labels: tuple[str, ...] = ()
    labels_file: str | None = None
    """The labels, a line each, in a file relative to the model repository, where they come with the weights."""
    exclusive: bool = False
    """Classify: one label is true, so that the probabilities add up to 1; else each is its own."""
    kv_budget_tokens: Annotated[int, Field(gt=0)] | None = None
    """Chat: prompt and granted answer tokens that may be in flight, over all router replicas."""
    kv_bytes_per_token: Annotated[int, Field(gt=0)] | None = None
    kv_config: KvConfig | None = None
    """Chat: of the checkpoint's config.json what decides the bytes per token."""
    kv_memory_bytes: Annotated[int, Field(gt=0)] | None = None
    """Chat: the memory that the backend has for keys and values; the budget in tokens follows from it."""
    licence: str
    source: str
    description: str = ""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if "interactive" not in self.triton and self.runs_on in ("zoo", "leaf"):
            raise ValueError("triton needs an `interactive` model")
        if (self.runs_on == "zoo") is (self.task == "chat"):
            raise ValueError("chat models run on `leaf`, `engine` or `upstream`, all others on `zoo`")
        if self.task == "chat":
            self._refuse_other_place()
        if self.adapter is not None:
            raise ValueError("`adapter` is chosen by a request; declare adapters in `backend.lora`")
        if self.release_of is not None:
            raise ValueError("`release_of` is chosen by the router; declare `releases` of the model that serves")
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
        if self.runs_on == "leaf" and self.tokenizer is None:
            raise ValueError("a chat model on the leaf needs a `tokenizer`")
        if self.runs_on == "leaf" and self.kv_tokens is None:
            raise ValueError(
                "a chat model on the leaf needs `kv_budget_tokens`, or `kv_memory_bytes` with `kv_config` or "
                "`kv_bytes_per_token`"
            )
        return self

    def _refuse_other_place(self) -> None:
        if self.chat_backend.is_upstream is (self.runs_on == "leaf"):
            raise ValueError(f"a backend of kind {self.chat_backend.kind} does not run on `{self.runs_on}`")
        if (self.chat_backend.url is None) is (self.runs_on == "upstream"):
            raise ValueError("a model has a `backend.url` where it runs on `upstream`, and only there")

    @field_validator("backend")
    @classmethod
    def _engine_is_llama_cpps(cls, backend: Backend | None, info: ValidationInfo) -> Backend | None:
        """What its server takes for granted, and what its grammars pass over, is known without being declared."""
        if backend is None or info.data.get("runs_on") != "engine":
            return backend
        if "server" in backend.model_fields_set and backend.server != "llama.cpp":
            raise ValueError("what `runs_on: engine` is llama.cpp's server: leave `server` out")
        return backend.model_copy(update={"server": "llama.cpp"})

    @field_validator("kv_config")
    @classmethod
    def _one_size_of_a_token(cls, config: KvConfig | None, info: ValidationInfo) -> KvConfig | None:
        if config is not None and info.data.get("kv_bytes_per_token") is not None:
            raise ValueError("`kv_bytes_per_token` says it already: give one of the two")
        return config

    @field_validator("kv_memory_bytes")
    @classmethod
    def _memory_is_a_budget(cls, memory: int | None, info: ValidationInfo) -> int | None:
        if memory is None:
            return memory
        if info.data.get("kv_budget_tokens") is not None:
            raise ValueError("`kv_budget_tokens` says it already: give one of the two")
        config = info.data.get("kv_config")
        size = config.bytes_per_token if config else info.data.get("kv_bytes_per_token")
        if size is None:
            raise ValueError("give `kv_config` or `kv_bytes_per_token` too: without it this is no number of tokens")
        if memory < size:
            raise ValueError(f"one token takes {size} bytes: this holds none")
        return memory

    @property
    def kv_token_bytes(self) -> int | None:
        """Memory of one token's keys and values, where the catalogue says it."""
        return self.kv_config.bytes_per_token if self.kv_config is not None else self.kv_bytes_per_token

    @property
    def kv_tokens(self) -> int | None:
        """The budget in KV tokens: as given, or what the memory holds; None where there is none."""
        if self.kv_memory_bytes is not None and self.kv_token_bytes is not None:
            return self.kv_memory_bytes // self.kv_token_bytes
        return self.kv_budget_tokens

    @property
    def public_name(self) -> str:
        """What a caller asked for: its name, with the adapter if one was chosen; a canary's is the serving model's."""
        name = self.release_of or self.name
        return name if self.adapter is None else f"{name}:{self.adapter}"

    def with_adapter(self, adapter: str) -> "Model":
        """The same model as a request gets it that chose this adapter: no release is known to have it."""
        return self.model_copy(update={"adapter": adapter, "releases": None})

    def alone(self) -> "Model":
        """The same model as a request gets it that shares it with no release."""
        return self if self.releases is None else self.model_copy(update={"releases": None})

    def answering_for(self, asked: "Model") -> "Model":
        """The same model as a request to `asked` gets it, whose canary it is."""
        return self.model_copy(update={"release_of": asked.name})

    @property
    def chat_backend(self) -> Backend:
        """What answers for this chat model."""
        return self.backend or _UNDECLARED[self.runs_on]

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
