"""Ctrl-C and SIGTERM end a job in order, once: what is under way is taken down, and a second one changes nothing."""

import signal

__all__ = ["end_in_order"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_in_order() -> None:
    """Have these signals raise KeyboardInterrupt; called again where a library has put its own handlers there."""
    for number in _SIGNALS:
        signal.signal(number, _leave)


def _leave(number: int, frame: object) -> None:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
