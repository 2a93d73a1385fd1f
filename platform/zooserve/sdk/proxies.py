"""Proxies of the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY): what goes past them, and what is told.

httpx reads them by itself. It has no exception for this very machine, where no proxy on another one leads.
"""

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from zooserve.errors import BadInput

__all__ = ["between", "direct", "is_loopback", "of_environment", "told_of", "usable_proxies", "verification"]


def is_loopback(url: str) -> bool:
    """Whether the address is this machine's own.

    >>> is_loopback("http://127.0.0.1:8000"), is_loopback("http://localhost"), is_loopback("http://10.0.0.1")
    (True, True, False)
    """
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def direct(url: str) -> dict[str, Any]:
    """For a client of httpx: the environment's proxies are not asked for what is on this machine."""
    return {"trust_env": False} if is_loopback(url) else {}


def verification(url: str) -> Any:
    """What httpx's `verify` is for this address: nothing without https, and SSL_CERT_FILE's in either case."""
    if not url.startswith("https:"):
        return False  # reading the certificates takes tens of milliseconds
    return httpx.create_ssl_context() if is_loopback(url) else True


@contextmanager
def usable_proxies() -> Iterator[None]:
    """Around the making of a client. Raises BadInput where httpx can use none of what the environment names."""
    try:
        yield
    except (ImportError, ValueError, httpx.InvalidURL) as exc:
        raise BadInput(
            f"A proxy that the environment names cannot be used: {exc} See HTTP_PROXY, HTTPS_PROXY and ALL_PROXY; "
            "NO_PROXY=* goes past all of them, and `http` takes an httpx client of yours."
        ) from exc


def between(client: httpx.Client | httpx.AsyncClient, url: str) -> str | None:
    """The proxy that a request of this client to this address goes through, without its password."""
    transport = client._transport_for_url(httpx.URL(url))
    proxy = getattr(getattr(transport, "_pool", None), "_proxy_url", None)
    if proxy is None:
        return None
    host, port = proxy.host.decode(), proxy.port
    return f"{proxy.scheme.decode()}://{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}"


def of_environment(url: str) -> str | None:
    """The proxy that a client of httpx made by others goes through; none to this machine, as `direct` has it."""
    if is_loopback(url):
        return None
    with httpx.Client(verify=False) as client:  # noqa: S501  (nothing is sent)
        return between(client, url)


def told_of(proxy: str | None, url: str) -> str:
    """What an error adds where a proxy may be to blame; nothing without one."""
    if proxy is None:
        return ""
    return (
        f" The request went by the proxy {proxy}, which HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names, or the client given"
        f" as `http`: is that up, and does it lead there? NO_PROXY={urlsplit(url).hostname} goes past it."
    )
