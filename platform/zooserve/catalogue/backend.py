"""What answers for a chat model: which protocol it speaks, where it is, and what it can do.

A request for something that a backend cannot do is refused by name. It is never dropped, and never merely prompted for.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from zooserve.catalogue.entry import Entry

__all__ = ["CAPABILITIES", "Adapter", "Backend", "BackendKind", "Feature", "OpenAIServer", "ToolFamily"]

BackendKind = Literal["llmapi", "tensorrt_llm", "vllm", "openai", "anthropic"]
"""The protocol: TensorRT-LLM's llmapi model, its older engine path, Triton's vLLM backend, OpenAI's, Anthropic's."""

Feature = Literal[
    "completions",
    "images",
    "json_object",
    "json_schema",
    "logit_bias",
    "logprobs",
    "n",
    "penalties",
    "seed",
    "tool_choice",
    "tools",
]
"""What a request may ask for and a backend may lack:

completions: raw prompts. images: image parts in messages. json_object, json_schema: `response_format`, enforced by a
grammar. n: several choices of one request (without it the router asks once for each). penalties: frequency and
presence. tools: the engine writes `tool_calls` itself (without it, and with json_schema, the router builds them on a
schema). tool_choice: the engine enforces `required` and a named function.
"""

ToolFamily = Literal["hermes", "llama3", "mistral"]
"""How a model family writes a tool call: the JSON that the router has it write under a schema, and reads back."""

OpenAIServer = Literal["llama.cpp", "openai", "other", "sglang", "trtllm", "vllm"]
"""The programs that speak OpenAI's API, as far as they differ in what they take for granted."""

_SAMPLED: frozenset[Feature] = frozenset({"completions", "penalties", "seed"})

CAPABILITIES: Mapping[BackendKind, frozenset[Feature]] = MappingProxyType(
    {
        "llmapi": _SAMPLED,
        "tensorrt_llm": _SAMPLED,
        "vllm": _SAMPLED | {"json_object", "json_schema", "logprobs"},
        "openai": _SAMPLED
        | {"images", "json_object", "json_schema", "logit_bias", "logprobs", "n", "tool_choice", "tools"},
        "anthropic": frozenset({"images", "tool_choice", "tools"}),
    }
)
"""What each kind can do; a catalogue entry's `can` and `cannot` say where its server differs. An engine of kind
tensorrt_llm writes JSON only where it was set up with a grammar: `can: [json_object, json_schema]`.
"""

_OVER_HTTP: tuple[BackendKind, ...] = ("openai", "anthropic")
_OF_MESSAGES: frozenset[Feature] = frozenset({"images", "tool_choice", "tools"})
"""What a rendered prompt does not carry: no `can` lends it to a backend that takes one."""
_WITH_ADAPTERS: tuple[BackendKind, ...] = ("llmapi", "vllm")


class Adapter(Entry):
    """A LoRA adapter of a chat model, asked for as `model:adapter`. A caller names it, and says nothing else of it."""

    id: Annotated[int, Field(gt=0, lt=2**63)]
    """By which the engine keeps its weights: another adapter's weights need another number."""
    path: Annotated[str, Field(pattern=r"^/")]
    """Its folder, on the disk of the server that runs the model."""
    source: Literal["hf", "nemo"] = "hf"
    """The form that the folder is in."""


AdapterName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]


HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$")]

_NOT_FORWARDED = frozenset(
    {
        "accept-encoding",
        "api-key",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-api-key",
    }
)
"""The caller's credentials, and what speaks of its connection or its body alone."""


class Backend(Entry):
    """What answers for one chat model."""

    kind: BackendKind = "llmapi"
    leaves: tuple[Annotated[str, Field(pattern=r"^[^\s:/]+:[0-9]{1,5}$")], ...] = ()
    """gRPC addresses (host:port) of the Tritons that serve it; none: the platform's own leaf."""
    url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    """Base URL of an upstream, with its `/v1`."""
    server: OpenAIServer = "openai"
    """Kind openai: the program that answers at `url`."""
    max_in_flight: Annotated[int, Field(gt=0)] = 64
    """Requests that may be with it at once over all router replicas, whatever their size; more wait for their turn."""
    model: str | None = None
    """Its name over there; none: the public name."""
    key_env: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")] | None = None
    """The environment variable of the router that holds the upstream's API key."""
    forward_headers: tuple[HeaderName, ...] = ()
    """Headers of the caller's request that the upstream is to see; no others are passed on."""
    can: frozenset[Feature] = frozenset()
    """Features beyond those of its kind."""
    cannot: frozenset[Feature] = frozenset()
    """Features of its kind that this server lacks."""
    tool_family: ToolFamily = "hermes"
    lora: Mapping[AdapterName, Adapter] = Field(default_factory=dict)
    """Adapters by name. Nothing but what stands here is ever sent to the server."""

    @property
    def features(self) -> frozenset[Feature]:
        """What a request for this model may ask for."""
        return (CAPABILITIES[self.kind] | self.can) - self.cannot

    @property
    def is_upstream(self) -> bool:
        """Whether it is asked over HTTP, with messages, rather than over gRPC with a rendered prompt."""
        return self.kind in _OVER_HTTP

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.can & self.cannot:
            raise ValueError(f"`can` and `cannot` both name {', '.join(sorted(self.can & self.cannot))}")
        if len(set(self.leaves)) < len(self.leaves):
            raise ValueError("`leaves` names an address twice")
        if self.leaves and self.is_upstream:
            raise ValueError(f"a backend of kind {self.kind} has a `url`, not `leaves`")
        if self.url is not None and not self.is_upstream:
            raise ValueError(f"a backend of kind {self.kind} has `leaves`, not a `url`")
        if not self.is_upstream and self.can & _OF_MESSAGES:
            lent = ", ".join(sorted(self.can & _OF_MESSAGES))
            raise ValueError(f"a backend of kind {self.kind} takes rendered prompts, so that `can` has no {lent}")
        own = [name for name in self.forward_headers if name.lower() in _NOT_FORWARDED]
        if own:
            raise ValueError(f"`forward_headers` names {own[0]}, which is the caller's own or this connection's")
        self._refuse_other_adapters()
        return self

    def _refuse_other_adapters(self) -> None:
        if self.lora and self.kind not in _WITH_ADAPTERS:
            raise ValueError(f"a backend of kind {self.kind} has no `lora`: it is of {' or '.join(_WITH_ADAPTERS)}")
        ids = [adapter.id for adapter in self.lora.values()]
        if len(set(ids)) < len(ids):
            raise ValueError("two adapters of `lora` have the same `id`")
