"""What a running request holds of its model's budget, given back call by call."""

import asyncio
from collections.abc import Sequence

from zooserve_router.fair_queue import FairQueue

__all__ = ["Held"]


class Held:
    """The tokens of one admitted request's calls; a call that ends early gives back all that it was granted."""

    def __init__(self, queue: FairQueue, tokens_by_call: Sequence[int], settles_s: float) -> None:
        self._queue = queue
        self._tokens = dict(enumerate(tokens_by_call))
        self._settles_s = settles_s

    def counted(self, call: int, tokens: int) -> None:
        """The backend has counted, and this call occupies at least so much."""
        more = tokens - self._tokens.get(call, tokens)
        if more > 0:
            self._queue.take_more(more)
            self._tokens[call] += more

    def ended(self, call: int) -> None:
        """The backend is done with this call: its room is free at once."""
        tokens = self._tokens.pop(call, None)
        if tokens is not None:
            self._queue.give_back(tokens)

    def left(self, call: int) -> None:
        """The backend was told to stop, and has not said when it has: the room is free once it surely did."""
        tokens = self._tokens.pop(call, None)
        if tokens is not None:
            asyncio.get_running_loop().call_later(self._settles_s, self._queue.give_back, tokens)

    def left_all(self) -> None:
        """The same for every call that has not ended."""
        for call in list(self._tokens):
            self.left(call)
