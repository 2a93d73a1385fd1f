"""How far an answer got: what was written of each choice, when, and what its backend said of it."""

import time
from dataclasses import dataclass, field

from zooserve_router.chat.ask import Ask, Step
from zooserve_router.chat.asking import tokens_of
from zooserve_router.chat.generation import EngineReport, Generation, Piece, Timings, Usage

__all__ = ["Choice", "Run", "says_more_than_text", "says_something"]


@dataclass
class Choice:
    """One choice as the router saw it; moments are of the monotonic clock."""

    call: int
    said: list[str] = field(default_factory=list)
    """Everything that the caller gets, text, thoughts and calls of tools alike."""
    finish_reason: str | None = None
    is_told: bool = False
    """Whether the caller was given its end."""
    tokens: int = 0
    """Its length, known once it is finished."""
    first_at: float | None = None
    last_at: float | None = None
    timings: Timings | None = None
    report: EngineReport | None = None

    @property
    def seconds_a_token(self) -> float | None:
        """Its pace after the first token; None for answers of fewer than two tokens."""
        if self.first_at is None or self.last_at is None or self.tokens < 2:
            return None
        return (self.last_at - self.first_at) / (self.tokens - 1)


class Run:
    """One request's way through its backend."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.choices = [Choice(index) for index, call in enumerate(ask.calls) for _ in range(call.choices)]
        self.sent_at: dict[int, float] = {}
        """When each call was handed to the backend."""
        self.usages: dict[int, Usage] = {}
        """What the backend counted, by call."""
        self.past_stop: list[str] = []
        """Text that the backend wrote beyond a stop string."""
        self.is_answered = False
        """Whether the backend has sent anything, be it only that it reads the prompt."""

    @property
    def finished(self) -> int:
        """Choices whose end the caller was given."""
        return sum(choice.is_told for choice in self.choices)

    @property
    def is_complete(self) -> bool:
        """Whether the caller was given the end of every choice."""
        return self.finished == len(self.choices)

    @property
    def has_begun(self) -> bool:
        """Whether any of it was written."""
        return any(choice.first_at is not None for choice in self.choices)

    def has_ended(self, call: int) -> bool:
        """Whether every choice of this call has its end, be it still on its way to the caller."""
        return all(choice.finish_reason is not None for choice in self.choices if choice.call == call)

    def sent(self, call: int) -> None:
        """A call goes to the backend now."""
        self.sent_at[call] = time.monotonic()

    def took(self, index: int, piece: Piece, text: str) -> None:
        """A piece of this choice has come, of whose text so much is for the caller."""
        choice = self.choices[index]
        if text:
            choice.said.append(text)
        if says_more_than_text(piece):
            choice.said += [piece.reasoning, piece.refusal]
            choice.said += [words for part in piece.tool_calls for words in (part.name or "", part.arguments)]
        self.noted(index, piece)
        if says_something(piece):
            choice.last_at = time.monotonic()
            choice.first_at = choice.first_at or choice.last_at
        elif piece.finish_reason is not None:
            choice.last_at = time.monotonic()

    def noted(self, index: int, piece: Piece) -> None:
        """The engine's figures of this choice, which may come after its end."""
        choice = self.choices[index]
        choice.timings = piece.timings or choice.timings
        choice.report = piece.report or choice.report

    def told(self, step: Step) -> None:
        """The caller is given this step."""
        if step.finish_reason is not None:
            self.choices[step.index].is_told = True

    def finish(self, index: int, reason: str) -> int:
        """The choice has ended; its length: the whole grant where that ended it, else its own."""
        choice = self.choices[index]
        choice.finish_reason = reason
        usage = self.usages.get(choice.call)
        if usage is not None and self.ask.calls[choice.call].choices == 1:
            choice.tokens = usage.completion_tokens
        elif reason == "length":
            choice.tokens = self.ask.granted_tokens
        else:
            choice.tokens = min(self._length("".join(choice.said)), self.ask.granted_tokens)
        return choice.tokens

    def count_unfinished(self) -> int:
        """Count the choices whose end nobody was given; their tokens are what nobody got the good of."""
        unfinished = [choice for choice in self.choices if not choice.is_told]
        for choice in unfinished:
            choice.tokens = self._length("".join(choice.said))
        return sum(choice.tokens for choice in unfinished)

    def tokens_past_stop(self) -> int:
        """How much the backend wrote beyond stop strings."""
        return sum(self._length(text) for text in self.past_stop)

    def delivery_delay_s(self, choice: Choice) -> float:
        """What a choice with timings took as seen from here, less what the engine says: the ways there and back.

        Both are differences on a clock of their own, so no two clocks are compared.
        """
        if choice.timings is None or choice.last_at is None:
            return 0.0
        return max(0.0, choice.last_at - self.sent_at[choice.call] - choice.timings.total_s)

    def total(self) -> Usage:
        """The tokens of everything, by the backend's count where it has one."""
        counted = list(self.usages.values())
        return Usage(
            prompt_tokens=self._prompt_tokens(),
            completion_tokens=sum(self._completion_tokens(call) for call in range(len(self.ask.calls))),
            cached_tokens=self._cached_tokens(),
            reasoning_tokens=sum(usage.reasoning_tokens for usage in counted),
        )

    def _completion_tokens(self, call: int) -> int:
        own = sum(choice.tokens for choice in self.choices if choice.call == call)
        usage = self.usages.get(call)
        if usage is None:
            return own
        # A count that came on the way is older than the text that came after it.
        return usage.completion_tokens if self.has_ended(call) else max(usage.completion_tokens, own)

    def _prompt_tokens(self) -> int:
        """Each prompt once, however many calls were made of it."""
        prompts = {_prompt_of(call.work) for call in self.ask.calls}
        counted = {_prompt_of(self.ask.calls[call].work): usage.prompt_tokens for call, usage in self.usages.items()}
        return sum(counted.values()) if counted.keys() == prompts else self.ask.prompt_tokens

    def _cached_tokens(self) -> int:
        """Of each prompt once, too, the most that any call of it found: never more than the prompts have."""
        cached: dict[tuple[str, tuple[int, ...]] | None, int] = {}
        for call, usage in self.usages.items():
            prompt = _prompt_of(self.ask.calls[call].work)
            cached[prompt] = max(usage.cached_tokens, cached.get(prompt, 0))
        return sum(cached.values())

    def _length(self, text: str) -> int:
        return tokens_of(self.ask.chat, text)


def says_something(piece: Piece) -> bool:
    """Whether the piece brings anything of an answer, rather than its end or its figures."""
    return bool(piece.text or says_more_than_text(piece))


def says_more_than_text(piece: Piece) -> bool:
    """Whether the piece brings anything of an answer besides text."""
    return bool(piece.tool_calls or piece.reasoning or piece.refusal or piece.logprobs)


def _prompt_of(work: object) -> tuple[str, tuple[int, ...]] | None:
    """What tells one prompt from another; a conversation's calls all have the same."""
    return (work.prompt, work.ids) if isinstance(work, Generation) else None
