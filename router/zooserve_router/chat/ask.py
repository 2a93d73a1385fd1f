"""What a chat request takes: its calls to the backend, the choices they make, the tokens they hold."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import Literal

from zooserve_router.chat.generation import Generation, Piece, TokenLogprob, ToolCallPart, Work
from zooserve_router.chat.models import ChatModel

__all__ = ["Ask", "Call", "PieceReader", "Prompt", "Step", "calls_of_prompts"]

PieceReader = Callable[[AsyncGenerator[Piece, None], int], AsyncGenerator[Piece, None]]
"""Makes what the caller is to see out of what the backend says of so many choices; closing the one closes the other."""


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt and its exact length."""

    text: str
    tokens: int
    ids: tuple[int, ...] = ()
    """Its tokens, where they are sent in the place of the text."""


@dataclass(frozen=True)
class Call:
    """One request to the backend, which makes `choices` answers."""

    work: Work
    held_tokens: int
    """KV tokens that it may come to occupy: its prompt and everything granted."""
    choices: int = 1
    reader: PieceReader | None = None
    """How the answer is to be read where the backend writes it in another form than the caller gets."""


@dataclass(frozen=True)
class Ask:
    """Everything that one request wants."""

    chat: ChatModel
    calls: tuple[Call, ...]
    prompt_tokens: int
    """Tokens of all prompts, each counted once; an estimate where the backend alone can count."""
    granted_tokens: int
    """What each choice may have."""
    operation: Literal["chat", "text_completion"] = "chat"
    """What OpenTelemetry calls this."""

    @property
    def held_tokens(self) -> int:
        """KV tokens that this may come to occupy."""
        return sum(call.held_tokens for call in self.calls)

    @property
    def choices(self) -> int:
        """How many answers this makes."""
        return sum(call.choices for call in self.calls)

    @property
    def work(self) -> Work:
        """What the first call asks; the others differ in prompt and seed."""
        return self.calls[0].work


def calls_of_prompts(prompts: tuple[Prompt, ...], asked: Generation, n: int) -> tuple[Call, ...]:
    """One call per choice, in the order of their index, each as `asked` but for its prompt and its seed.

    Each has a seed of its own, so that no two say the same.
    """
    return tuple(
        Call(_seeded(asked, prompt, choice), prompt.tokens + asked.sampling.max_tokens)
        for prompt in prompts
        for choice in range(n)
    )


def _seeded(asked: Generation, prompt: Prompt, choice: int) -> Generation:
    sampling = replace(asked.sampling, seed=(asked.sampling.seed + choice) % 2**63)
    return replace(asked, prompt=prompt.text, ids=prompt.ids, sampling=sampling)


@dataclass(frozen=True)
class Step:
    """What is new of one choice. The last step of a choice has its finish reason and its length."""

    index: int
    text: str = ""
    finish_reason: str | None = None
    completion_tokens: int = 0
    tool_calls: tuple[ToolCallPart, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    reasoning: str = ""
    refusal: str = ""
