"""Which of several leaves a generation goes to: where its prompt's beginning is cached, unless that one is too busy.

Rendezvous hashing: each key ranks the leaves by a hash of both. Every router ranks alike without talking to another,
and a leaf that leaves moves its own keys alone, each to its second choice. The key is the prompt's first window of
characters, so that a conversation's later turns, and conversations under one long system prompt, meet on one leaf; a
prompt shorter than the window changes its key as it grows, and loses less than a window of prefill by it. Bounded
load: a leaf beyond `LOAD_FACTOR` times the mean is passed over, so that one hot prefix cannot fill one leaf while
others idle, and what it spills goes to the same second leaf each time.
"""

import hashlib
from collections.abc import Mapping, Sequence

from zooserve_router.chat.generation import Generation

__all__ = ["IDLE_PART", "LOAD_FACTOR", "WINDOW_CHARACTERS", "affinity_key", "chosen_leaf", "estimated_tokens", "ranked"]

WINDOW_CHARACTERS = 512
"""About 128 tokens, four blocks of TensorRT-LLM's KV cache: shorter prefixes are not worth waiting for."""
LOAD_FACTOR = 1.25
"""How far above the mean a leaf's load may be for the sake of its cache."""
IDLE_PART = 8
"""A leaf with less than this part of its KV budget in flight is not too busy for what it has cached."""
_CHARACTERS_PER_TOKEN = 4


def affinity_key(generation: Generation, window_characters: int = WINDOW_CHARACTERS) -> str:
    """What generations that share a cached prefix have in common: the caller's key, else how the prompt begins."""
    adapter = generation.lora or ""  # an adapter's KV is of no use to another
    if generation.cache_key is not None:
        return f"key\0{adapter}\0{generation.cache_key}"
    return f"prompt\0{adapter}\0{generation.prompt[:window_characters]}"


def ranked(key: str, leaves: Sequence[str]) -> list[str]:
    """The leaves in this key's order of preference."""
    return sorted(leaves, key=lambda leaf: _score(key, leaf), reverse=True)


def _score(key: str, leaf: str) -> bytes:
    return hashlib.blake2b(leaf.encode(), key=hashlib.blake2b(key.encode()).digest(), digest_size=8).digest()


def chosen_leaf(order: Sequence[str], loads: Mapping[str, int], tokens: int, idle_tokens: int = 0) -> str:
    """The first leaf of `order` that is not too busy for `tokens` more; if all are, the least loaded.

    Loads are KV tokens. Below `idle_tokens` no leaf counts as busy, whatever the others have.
    """
    total = sum(loads[leaf] for leaf in order) + tokens
    bound = max(idle_tokens, LOAD_FACTOR * total / len(order))
    fitting = (leaf for leaf in order if loads[leaf] + tokens <= bound)
    return next(fitting, min(order, key=lambda leaf: loads[leaf]))


def estimated_tokens(generation: Generation) -> int:
    """KV tokens that it may come to hold: English has about four characters a token, and the grant is its bound."""
    return len(generation.prompt) // _CHARACTERS_PER_TOKEN + generation.sampling.max_tokens
