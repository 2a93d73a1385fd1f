"""Optimization profiles: the shapes that a plan is built for, one profile a bucket."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Profile", "profile_for", "profiles_of"]


@dataclass(frozen=True)
class Profile:
    """Batches of 1 to `max_batch` texts of exactly `length` tokens; tactics are chosen for `opt_batch`.

    The tokenizer pads to buckets, so no other length reaches the encoder, and a fixed one lets TensorRT choose kernels
    for it. Triton picks, among the profiles that an instance group names, the one whose range holds the batch.
    """

    length: int
    opt_batch: int
    max_batch: int

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """The least, the best and the largest shape of every input."""
        return (1, self.length), (self.opt_batch, self.length), (self.max_batch, self.length)


def profiles_of(buckets: Sequence[int], max_batch: int, opt_batch: int | None = None) -> tuple[Profile, ...]:
    """One a bucket, ascending: profile 0 is the shortest. By default tactics are chosen for full batches."""
    best = max_batch if opt_batch is None else opt_batch
    return tuple(Profile(length, best, max_batch) for length in buckets)


def profile_for(length: int, profiles: Sequence[Profile]) -> int:
    """The place of the profile for that length. Raises KeyError where there is none."""
    for place, profile in enumerate(profiles):
        if profile.length == length:
            return place
    raise KeyError(length)
