"""What the chat side hands to a backend, and what it gets back: plain values, no protocol."""

from dataclasses import dataclass

__all__ = ["Generation", "Piece", "Timings"]


@dataclass(frozen=True)
class Generation:
    """One answer to be generated: a rendered prompt and how to sample from there."""

    prompt: str
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class Timings:
    """Where the engine spent an answer's time, in seconds; its clock is steady, so only differences mean something."""

    queue_s: float
    prefill_s: float
    decode_s: float


@dataclass(frozen=True)
class Piece:
    """The next part of an answer; the last one says why it ended."""

    text: str
    finish_reason: str | None = None
    timings: Timings | None = None
