"""Requests to our own servers: they stand on this machine or next to it, where no proxy of the environment leads.

urllib, httpx and gRPC ask the environment (http_proxy) for every address that no_proxy does not name, 127.0.0.1 too.
"""

import urllib.request
from typing import Any

__all__ = ["open_unproxied"]

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def open_unproxied(request: "str | urllib.request.Request", timeout: float) -> Any:
    """The answer, to be closed; raises as `urllib.request.urlopen` does."""
    return _direct.open(request, timeout=timeout)
