"""What went wrong with one try, as an error of zooserve.errors, and whether another try may go better."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zooserve import errors
from zooserve.sdk.retries import asks_to_wait_s, worth_another

__all__ = ["Fault", "error_of_event", "fault_of_answer", "renumber", "unreadable"]

_BY_CODE: dict[str, type[errors.ServingError]] = {
    kind.code: kind
    for kind in (
        errors.BadInput,
        errors.InputTooLong,
        errors.TooManyItems,
        errors.Unsupported,
        errors.TemplateFailed,
        errors.BodyTooLarge,
        errors.ModelNotFound,
        errors.OtherEmbeddingSpace,
        errors.RouteNotFound,
        errors.MethodNotAllowed,
        errors.BackendFailed,
        errors.DeadlineExceeded,
        errors.InternalError,
    )
    if kind.code is not None
}
_BY_STATUS: dict[int, type[errors.ServingError]] = {
    400: errors.BadInput,
    404: errors.ModelNotFound,
    405: errors.MethodNotAllowed,
    409: errors.OtherEmbeddingSpace,
    413: errors.BodyTooLarge,
    422: errors.BadInput,
    429: errors.Overloaded,
    500: errors.InternalError,
    502: errors.BackendFailed,
    503: errors.BackendUnavailable,
    504: errors.DeadlineExceeded,
}
_KEY_STATUS = (401, 403)
_PROXY_WANTS_KEY = 407
_SHOWN_CHARACTERS = 200
_ITEM = re.compile(r"\b(inputs?|documents)\[(\d+)\]")


@dataclass(frozen=True)
class Fault:
    """One failed try: what to raise if it was the last, whether another may help, and when the server wants it."""

    error: errors.ZooserveError
    again: bool = False
    after_s: float | None = None

    @property
    def overloaded(self) -> bool:
        """Whether nothing is wrong but that others were there before."""
        return isinstance(self.error, errors.Overloaded)

    def adding(self, words: str) -> "Fault":
        """The same, whose error says this too."""
        said = f"{self.error}{words}"
        self.error.args = (said,)
        if isinstance(self.error, errors.ServingError | errors.CallFailed):
            self.error.message = said
        return self


@dataclass(frozen=True)
class _Told:
    """What the body of an error says, in whichever dialect; `message` is empty where it says nothing readable."""

    message: str = ""
    code: str | None = None
    param: str | None = None
    stage: errors.FailedStage | None = None

    @classmethod
    def read(cls, body: bytes) -> "_Told":
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return cls()
        inner = value.get("error", value) if isinstance(value, dict) else None
        if isinstance(inner, str):
            return cls(inner)
        if not isinstance(inner, dict):
            return cls()
        return cls(
            _text(inner.get("message")) or "",
            _text(inner.get("code")),
            _text(inner.get("param")),
            _stage(inner.get("failed_stage")),
        )


def fault_of_answer(status: int, headers: Mapping[str, str], body: bytes, url: str) -> Fault:
    """Of an answer that is no success. Header names are in small letters."""
    after_s = asks_to_wait_s(headers, time.time())
    error = _error(status, headers, body, url)
    if isinstance(error, errors.ServingError | errors.CallFailed):
        error.status, error.request_id = status, headers.get("x-request-id")
        error.retry_after_s = after_s
    return Fault(error, worth_another(status, headers), after_s)


def error_of_event(body: bytes, request_id: str) -> errors.ServingError:
    """Of an `error` event in a stream. It has no status, since the answer had begun: its code says what it is."""
    told = _Told.read(body)
    kind = _BY_CODE.get(told.code or "", errors.BackendFailed)
    message = told.message or "The answer failed in the middle."
    error = kind(message, param=told.param, code=told.code, failed=told.stage)
    error.request_id = request_id
    return error


def renumber(error: errors.ServingError, first: int) -> None:
    """Name the item at fault by its place in the caller's list, where it was sent in a part that begins at `first`."""

    def moved(item: re.Match[str]) -> str:
        return f"{item[1]}[{first + int(item[2])}]"

    error.message = _ITEM.sub(moved, error.message, count=1)
    error.args = (error.message,)
    error.param = None if error.param is None else _ITEM.sub(moved, error.param, count=1)


def unreadable(url: str, why: str, request_id: str | None = None) -> errors.UnreadableAnswer:
    """The error of an answer that is not this API's."""
    return errors.UnreadableAnswer(
        f"What answers at {url} does not speak zooserve's API: {why}. Is this the platform's address (`base_url`, or "
        "ZOOSERVE_URL)?",
        request_id=request_id,
    )


def _error(status: int, headers: Mapping[str, str], body: bytes, url: str) -> errors.ZooserveError:
    told = _Told.read(body)
    shown = told.message or _shown(status, headers, body, url)
    if status == _PROXY_WANTS_KEY:
        return errors.KeyRefused(f"{shown} It is a proxy on the way to {url} that wants a user and a password.")
    if status in _KEY_STATUS:
        return errors.KeyRefused(
            f"{shown} The key is refused at {url}: give the right one as `api_key`, or as ZOOSERVE_API_KEY."
        )
    kind = _kind(status, told, headers)
    if kind is None:
        return unreadable(url, shown)
    stage = told.stage or _stage_of_header(headers.get("x-zooserve-failed-stage"))
    if kind is errors.Overloaded:
        return errors.Overloaded(shown, param=told.param, failed=stage)
    return kind(shown, param=told.param, code=told.code, failed=stage)


def _kind(status: int, told: _Told, headers: Mapping[str, str]) -> type[errors.ServingError] | None:
    """None where no platform gives such an answer: a redirect, or a page that another server does not have."""
    by_status = _BY_STATUS.get(status)
    if by_status is None and 400 <= status < 500 and told.message:
        by_status = errors.BadInput
    if not told.message and status in (404, 405) and "x-request-id" not in headers:
        return None
    named = _BY_CODE.get(told.code or "") or _BY_CODE.get(headers.get("x-zooserve-error-code", ""))
    return named if named is not None and by_status is not None and status < 500 and status != 429 else by_status


def _shown(status: int, headers: Mapping[str, str], body: bytes, url: str) -> str:
    """For a body that has no message of ours: HAProxy's, uvicorn's, or a foreign server's."""
    if "location" in headers:
        return f"{url} answered {status} and points to {headers['location']}"
    kind = headers.get("content-type", "no content type").partition(";")[0]
    beginning = " ".join(body[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "replace").split())[:_SHOWN_CHARACTERS]
    return f"{url} answered {status} with {kind} that is no error of zooserve's: {beginning!r}"


def _stage(value: Any) -> errors.FailedStage | None:
    if not isinstance(value, dict):
        return None
    return errors.FailedStage(*(str(value.get(key, "")) for key in ("name", "version", "reason")))


def _stage_of_header(value: str | None) -> errors.FailedStage | None:
    if value is None:
        return None
    name, _, version = ("" if value == "unknown" else value).partition("/")
    return errors.FailedStage(name, version, "error")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
