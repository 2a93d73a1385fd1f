"""How long each part of a platform may take to stop, and therefore all of it."""

from zooserve.settings import Settings

__all__ = ["LEFT_GRACE_S", "RAY_STOP_S", "router_stop_s", "stop_s"]

RAY_STOP_S = 30.0
LEFT_GRACE_S = 3.0
# What lies below each of the four is ended after it, 2 s for SIGTERM and 2 s for SIGKILL; then comes the copy of Ray's
# logs, and a busy machine needs time for everything.
_SLACK_S = 30.0


def router_stop_s(settings: Settings) -> float:
    """Answers in flight, then Ray."""
    return settings.router.drain_s + RAY_STOP_S


def stop_s(settings: Settings) -> float:
    """Router, engine, leaf and zoo one after the other, then what is left.

    Whoever kills a platform before cuts answers off.
    """
    # `zooserve route` has the router alone, and stops within this all the more.
    servers = (settings.engine, settings.leaf, settings.zoo)
    stopping_s = router_stop_s(settings) + sum(server.stop_timeout_s for server in servers)
    return stopping_s + 2 * LEFT_GRACE_S + _SLACK_S
