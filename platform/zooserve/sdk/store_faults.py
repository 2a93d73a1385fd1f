"""What Qdrant, or its local mode, fails with, as errors of zooserve.errors."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from zooserve.errors import StoreRefused, StoreUnavailable

__all__ = ["folder_in_use", "translated"]

_SHOWN_BYTES = 300


@contextmanager
def translated(where: str, url: str | None = None) -> Iterator[None]:
    """Around every call of a client. Raises StoreUnavailable, worth another try, or StoreRefused, which is not.

    `url` is the server's where the client goes to it as the environment says, by a proxy perhaps.
    """
    from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
    from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

    try:
        yield
    except ResourceExhaustedResponse as exc:
        raise StoreUnavailable(f"Qdrant at {where} is asked too much; come back in {exc.retry_after_s} s.") from exc
    except UnexpectedResponse as exc:
        raise _refusal(where, exc.status_code or 0, exc.content, url) from exc
    except ResponseHandlingException as exc:
        if isinstance(exc.source, ValueError):  # a success whose body is not what Qdrant answers
            raise _other_version(where, exc.source) from exc
        raise _silence(where, exc.source, url) from exc
    except (sqlite3.Error, OSError) as exc:  # of the local mode's files: a full disk, a folder that is gone
        raise StoreUnavailable(f"Qdrant at {where} fails: {exc}") from exc
    except AssertionError as exc:  # the client's own, where a success says nothing
        raise _other_version(where, exc) from exc
    except (ValueError, RuntimeError, KeyError) as exc:  # the local mode's refusals
        raise StoreRefused(f"Qdrant at {where} refuses: {exc}") from exc


def folder_in_use(path: str) -> StoreUnavailable:
    """The error of a local folder that another client holds."""
    return StoreUnavailable(
        f"Another process, or another client of this one, uses the Qdrant folder {path}. Qdrant's local mode is for "
        "one at a time: end that one, take another folder, or run a Qdrant server and give its url."
    )


def _other_version(where: str, source: Exception) -> StoreRefused:
    from importlib.metadata import version

    return StoreRefused(
        f"What answers at {where} is no Qdrant, or one of another version than its client "
        f"({version('qdrant-client')}), which may be one minor version away from it: {_why(source)}"
    )


def _silence(where: str, source: Exception, url: str | None) -> StoreUnavailable:
    import httpx

    if isinstance(source, httpx.ReadTimeout | httpx.WriteTimeout):
        return StoreUnavailable(
            f"Qdrant at {where} took too long to answer ({_why(source)}): it has too much to do, or its disk has. Try "
            "again; what it was asked to store may be stored by then, and is not stored twice."
        )
    return StoreUnavailable(
        f"No Qdrant answers at {where} ({_why(source)}). Is it up, and is this its address? Its REST port is 6333 "
        f"unless the address names another.{_proxied(url)}"
    )


def _proxied(url: str | None) -> str:
    from zooserve.sdk.proxies import of_environment, told_of

    return "" if url is None else told_of(of_environment(url), url)


def _refusal(where: str, status: int, content: bytes, url: str | None) -> StoreRefused | StoreUnavailable:
    said = content[:_SHOWN_BYTES].decode("utf-8", "replace")
    if b"status" not in content:  # no error of Qdrant's own
        said += _proxied(url)
    if status in (401, 403):
        return StoreRefused(
            f"Qdrant at {where} refuses the key ({status}): give the right one as collection(…, api_key=…). {said}"
        )
    if status >= 500 or status in (408, 429):
        return StoreUnavailable(f"Qdrant at {where} fails ({status}): {said}")
    if status == 404 and b"status" not in content:
        return StoreRefused(f"What answers at {where} is no Qdrant (404): {said}")
    return StoreRefused(f"Qdrant at {where} refuses ({status}): {said}")


def _why(source: Exception) -> str:
    return str(source)[:_SHOWN_BYTES] or type(source).__name__
