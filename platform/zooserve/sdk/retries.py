"""Which failed tries are worth another, and after how long. Time and chance are arguments.

Tried again are connection errors before an answer was whole, 429 and 503. Of 502 only one that a proxy gives by
itself (without a request id): the router's own says that a model failed on this very input, after the router's own
retries. Never 504: the seconds of a call are all it has, and whoever found them spent would be asked for the same work
again. `x-should-retry` overrules all of it. A call may be sent twice without harm: nothing is stored by any of them.
"""

from collections.abc import Mapping

__all__ = ["asks_to_wait_s", "pause_s", "worth_another"]

_TRANSIENT = frozenset({429, 503})
_BAD_GATEWAY = 502
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 8.0
_SPREAD = 0.1
"""Of what a server asks for: clients that were refused together do not come back together."""
_SHORTEST_PAUSE_S = 0.05
"""Whoever is asked to come back at once still takes a breath: a call of many parts would ask thousands of times."""


def worth_another(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer of this status may be another one the next time. Header names are in small letters."""
    told = headers.get("x-should-retry", "").lower()
    if told in ("true", "false"):
        return told == "true"
    return status in _TRANSIENT or (status == _BAD_GATEWAY and "x-request-id" not in headers)


def asks_to_wait_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """What `retry-after-ms` or `retry-after` (seconds, or a date) ask for; None if neither can be read.

    `now_s` is seconds since 1970.
    """
    for value, unit_s in ((headers.get("retry-after-ms"), 0.001), (headers.get("retry-after"), 1.0)):
        seconds = None if value is None else _seconds(value, unit_s, now_s)
        if seconds is not None:
            return seconds
    return None


def pause_s(failures: int, asked_s: float | None, chance: float) -> float:
    """Seconds until the next try, after the first, second … failure; `chance` lies between 0 and 1.

    At least what was asked for, and at least 50 to 100 ms; else between half and all of a doubling pause of at most
    8 s.
    """
    if asked_s is not None:
        return max(asked_s * (1 + _SPREAD * chance), _SHORTEST_PAUSE_S * (1 + chance))
    longest: float = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** (failures - 1))
    return longest * (1 + chance) / 2


def _seconds(value: str, unit_s: float, now_s: float) -> float | None:
    try:
        seconds = float(value) * unit_s
    except ValueError:
        return _until(value, now_s)
    return seconds if 0 <= seconds < float("inf") else None


def _until(date: str, now_s: float) -> float | None:
    from email.utils import parsedate_to_datetime  # dates are rare here, and this takes a while to load

    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now_s)
    except (ValueError, OverflowError):
        return None
