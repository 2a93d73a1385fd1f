"""Error codes as labels and in logs: our own, and one word for all that upstreams make up."""

from zooserve.errors import ServingError

__all__ = ["UPSTREAMS", "ForeignCode", "reason_of"]

UPSTREAMS = "upstream_refused"


class ForeignCode(str):
    """A code that an upstream gave: callers get it as it is, and nothing of ours is named by it."""

    __slots__ = ()


def reason_of(error: ServingError) -> str | None:
    """The error's code out of a bounded set."""
    return UPSTREAMS if isinstance(error.code, ForeignCode) else error.code
