"""The tokens of an answer, told as far as its text is: those that write a stop string are not."""

from collections import deque
from collections.abc import Sequence

from zooserve_router.chat.generation import TokenLogprob

__all__ = ["TokenGate"]


class TokenGate:
    """Holds tokens back as long as any of their text is; of a text that ended in a stop string, for good."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()
        """Where in the text each token ends."""
        self._heard = 0
        self._said = 0

    def feed(self, heard: str, tokens: Sequence[TokenLogprob], said: str) -> tuple[TokenLogprob, ...]:
        """The tokens that may go out now, where so much text came in with these, and so much goes out."""
        end, self._heard, self._said = self._heard, self._heard + len(heard), self._said + len(said)
        for token in tokens:
            end = min(end + len(token.token), self._heard)  # a part of a character is text only with its other parts
            self._waiting.append((end, token))
        told = []
        while self._waiting and self._waiting[0][0] <= self._said:
            told.append(self._waiting.popleft()[1])
        return tuple(told)
