"""One generation request on its way through the engine, and how it ended."""

import threading
from dataclasses import dataclass, field
from typing import Literal, Protocol

from zooserve.leaf.sampling import Sampling

__all__ = ["Cancelled", "Failed", "Finished", "Job", "Listener"]


@dataclass(frozen=True)
class Finished:
    """The answer is whole: the model or a stop string ended it ("stop"), or its bound did ("length")."""

    reason: Literal["stop", "length"]
    stop_string: str | None = None


@dataclass(frozen=True)
class Cancelled:
    """Nobody waits for the answer any more."""


@dataclass(frozen=True)
class Failed:
    """The engine could not answer."""

    message: str


class Listener(Protocol):
    """Whom a job answers to; called on engine threads, one at a time."""

    def progressed(self, job: "Job") -> None:
        """`job.text` has grown."""

    def ended(self, job: "Job") -> None:
        """`job.outcome` is set. Called exactly once, last, with the job's slot already free."""

    def left(self) -> bool:
        """Whether the caller has hung up."""


@dataclass(eq=False)
class Job:
    """A request's state, written by the one engine thread that runs it; anyone may read it."""

    prompt: str
    sampling: Sampling
    listener: Listener
    arrival_ns: int
    first_scheduled_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    text: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens whose KV was already there."""
    processed_tokens: int = 0
    """Prompt tokens whose KV is there by now, cached ones counted."""
    generated_tokens: int = 0
    cumulative_logprob: float = 0.0
    outcome: Finished | Cancelled | Failed | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def in_prefill(self) -> bool:
        """Whether no token came out yet."""
        return self.first_token_ns == 0

    @property
    def live_tokens(self) -> int:
        """Tokens whose KV this job holds."""
        return self.processed_tokens + self.generated_tokens
