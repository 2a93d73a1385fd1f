"""What the chat side hands to a backend, and what it gets back: plain values, no protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "MOST_TOKENS",
    "Constraint",
    "Conversation",
    "EngineReport",
    "Generation",
    "Message",
    "Piece",
    "Sampling",
    "Timings",
    "TokenLogprob",
    "Tool",
    "ToolCallPart",
    "ToolChoice",
    "Usage",
    "Work",
]

Message = dict[str, Any]
"""One message in OpenAI's shape, checked; text content is one string, unless the backend reads images."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and how many at most."""

    max_tokens: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    seed: int = 0
    logprobs: int | None = None
    """How many alternatives to report beside each token; None reports nothing."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Constraint:
    """What a grammar holds the answer to. `schema` is None for any JSON object."""

    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    description: str | None = None
    strict: bool = True


@dataclass(frozen=True)
class Tool:
    """A function that the model may have called. `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False


@dataclass(frozen=True)
class ToolChoice:
    """Whether functions are called: `auto` leaves it to the model, `function` asks for the one of this name."""

    mode: Literal["none", "auto", "required", "function"] = "auto"
    name: str | None = None


@dataclass(frozen=True)
class Generation:
    """One answer to be generated from a rendered prompt."""

    prompt: str
    sampling: Sampling = Sampling()
    lora: str | None = None
    """An adapter that the catalogue declares, by name."""
    constraint: Constraint | None = None
    """What the engine's grammar holds the answer to, where the backend has json_object or json_schema."""
    ids: tuple[int, ...] = ()
    """The prompt as token ids, for a backend that takes them; `prompt` is empty then."""
    cache_key: str | None = None
    """Generations of one key are worth having on one leaf, as their prompts begin alike; None: the prompt tells."""
    passed_on: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the request that mean something to the upstream alone."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The caller's headers that the catalogue allows the upstream to see."""
    is_probe: bool = False
    """Whether it is asked to learn whether its backend works: a circuit breaker lets it through."""


@dataclass(frozen=True)
class Conversation:
    """Messages to be answered by something that has its own chat template."""

    messages: Sequence[Message]
    sampling: Sampling = Sampling()
    n: int = 1
    constraint: Constraint | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    passed_on: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the request that mean something to the upstream alone: `user`, `service_tier`, `reasoning_effort`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The caller's headers that the catalogue allows the upstream to see."""
    cache_key: str | None = None
    """What conversations that share a beginning are called by the caller: their cache is kept on one leaf."""
    first_message: int | None = 0
    """Where among the messages the caller's own begin; None where they are told in other words than his."""
    is_probe: bool = False
    """As a generation's."""


Work = Generation | Conversation
"""What a backend is asked to do."""


@dataclass(frozen=True)
class Timings:
    """Where the engine spent an answer's time, in seconds; its clock is steady, so only differences mean something."""

    queue_s: float
    prefill_s: float
    decode_s: float

    @property
    def total_s(self) -> float:
        """From the engine's taking the request to its last token."""
        return self.queue_s + self.prefill_s + self.decode_s


@dataclass(frozen=True)
class EngineReport:
    """What the engine tells of one answer besides its times."""

    reused_blocks: int = 0
    """Blocks of the prompt whose KV was there already."""
    missed_blocks: int = 0
    draft_tokens: int = 0
    """Tokens that speculative decoding proposed."""
    accepted_draft_tokens: int = 0
    acceptance_rate: float | None = None


@dataclass(frozen=True)
class TokenLogprob:
    """A token that was chosen, its natural-log probability, and the likeliest alternatives as (text, logprob)."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()
    data: bytes | None = None
    """Its bytes where the backend tells them: of a token that is part of a character, the text is not."""


@dataclass(frozen=True)
class ToolCallPart:
    """What is new of the `index`-th call: `id` and `name` with its first part, its JSON arguments in pieces."""

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


MOST_TOKENS = 2**53
"""What a backend may count: logs and traces have no room for more, nor metrics for less than none."""


@dataclass(frozen=True)
class Usage:
    """Tokens as the backend counted them. Cached ones are part of the prompt's, reasoning ones of the completion's."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True)
class Piece:
    """The next part of an answer. A choice's last one says why it ended; `usage` may come after all of them."""

    text: str = ""
    finish_reason: str | None = None
    timings: Timings | None = None
    choice: int = 0
    """Which of the `n` answers of one call this belongs to."""
    tool_calls: tuple[ToolCallPart, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    reasoning: str = ""
    """What the model thinks aloud before its answer, where it does."""
    refusal: str = ""
    usage: Usage | None = None
    report: EngineReport | None = None
    cut: bool = False
    """Whether it was ended here, by a stop string that its backend does not know, and goes on over there."""
