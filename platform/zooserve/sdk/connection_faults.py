"""What went wrong with a connection, as an error of zooserve.errors, and whether another try may go better."""

import httpx

from zooserve import errors
from zooserve.sdk.faults import Fault, unreadable

__all__ = ["fault_of_connection"]


def fault_of_connection(exc: httpx.HTTPError, url: str) -> Fault:
    """Of a connection that could not be made, or ended before an answer began."""
    why = str(exc) or type(exc).__name__
    if isinstance(exc, httpx.ConnectError) and "SSL" in why:
        return Fault(
            errors.Unreachable(
                f"There is no safe connection to {url} ({why}). Does it speak https, and is its certificate known here "
                "(SSL_CERT_FILE, or an httpx client of yours as `http`)?"
            )
        )
    if isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout):
        return Fault(
            errors.Unreachable(
                f"Nobody answers at {url} ({why}). Is the platform up (`zooserve up`, `zooserve status`), and is this "
                "its address (`base_url`, or ZOOSERVE_URL)?"
            ),
            again=True,
        )
    if isinstance(exc, httpx.UnsupportedProtocol | httpx.LocalProtocolError | httpx.DecodingError):
        return Fault(unreadable(url, why))
    return Fault(errors.Unreachable(f"The connection to {url} ended before an answer was there ({why})."), again=True)
