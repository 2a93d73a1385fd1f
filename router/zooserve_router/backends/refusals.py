"""What an upstream says when it refuses or fails, and what that is to our caller.

The operator's faults (a key, an address, a name over there) are never the caller's: they become a BackendFailed, and
what the upstream wrote about a key is not repeated.
"""

import email.utils
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from zooserve.errors import (
    BackendFailed,
    BackendUnavailable,
    BadInput,
    DeadlineExceeded,
    InputTooLong,
    Overloaded,
    ServingError,
    Unsupported,
)
from zooserve_router.chat.generation import Generation, Work
from zooserve_router.reasons import ForeignCode

__all__ = ["Fault", "Refused", "fault_in", "in_callers_words", "refusal", "retry_after_s"]

_LONGEST_MESSAGE = 500
_LONGEST_RETRY_S = 3600.0
_TOO_LONG_CODES = {"context_length_exceeded", "exceed_context_size_error", "request_too_large"}
# vLLM, SGLang, TensorRT-LLM and Anthropic tell it in the message alone.
_TOO_LONG = re.compile(
    r"context (?:length|size|window|limit)|prompt is too long|prompt length|max_seq_len|longer than the model", re.I
)
_GRAMMAR = re.compile(r"json schema|grammar", re.I)
_MESSAGE = re.compile(r"messages(?:\[|\.)(?P<index>\d{1,5})\]?")
_NO_MONEY = ("insufficient_quota", "billing_error", "billing_not_active")
_STATUS_OF_TYPE: Mapping[str, int] = {
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "exceed_context_size_error": 400,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "request_too_large": 413,
    "timeout_error": 504,
    "BadRequestError": 400,
    "unavailable_error": 503,
}
"""The status that an error event means, by the types of OpenAI's, Anthropic's, llama.cpp's and vLLM's errors."""


class Refused(Exception):
    """The status that an upstream gave its refusal, as the cause of what our caller is told."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status

    @property
    def is_fault(self) -> bool:
        """Whether the upstream does not work, rather than not want to: 501 is what it lacks, 529 that it is full."""
        return self.status >= 500 and self.status not in (501, 529)


@dataclass(frozen=True)
class Fault:
    """An upstream's error as far as it can be read. `status` is what it says of itself, where it does."""

    message: str = ""
    type: str = ""
    param: str | None = None
    code: str | None = None
    status: int | None = None


def fault_in(body: Any) -> Fault:
    """The error in a parsed body: OpenAI's shape, the same without its outer object, FastAPI's, or a bare text."""
    found = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(found, str):
        return Fault(found[:_LONGEST_MESSAGE])
    if not isinstance(found, dict):
        return Fault()
    if isinstance(found.get("detail"), list | str):
        return _fastapis(found["detail"])
    code, param = found.get("code"), found.get("param")
    return Fault(
        message=str(found.get("message") or "")[:_LONGEST_MESSAGE],
        type=str(found.get("type") or ""),
        param=param if isinstance(param, str) and param else None,
        code=ForeignCode(code) if isinstance(code, str) and code and not code.isdecimal() else None,
        status=_status_told(code, str(found.get("type") or "")),
    )


def _fastapis(detail: Any) -> Fault:
    first = detail[0] if isinstance(detail, list) and detail else detail
    if not isinstance(first, dict):
        return Fault(str(first)[:_LONGEST_MESSAGE])
    where = [str(part) for part in first.get("loc", ()) if part != "body"]
    return Fault(str(first.get("msg", ""))[:_LONGEST_MESSAGE], param=".".join(where) or None)


def _status_told(code: Any, kind: str) -> int | None:
    if isinstance(code, int | str) and str(code).isdecimal() and 400 <= int(code) < 600:
        return int(code)
    return _STATUS_OF_TYPE.get(kind)


def refusal(status: int, fault: Fault, model: str, upstream_model: str, retry_s: float = 1.0) -> ServingError:
    """What our caller is told. `model` is the public name, `upstream_model` the one over there."""
    said = f": {fault.message}" if fault.message else "."
    if status in (401, 403):
        return BackendFailed(f"The upstream of {model} refuses the key that this router has for it ({status}).")
    if status == 402 or fault.type in _NO_MONEY or fault.code in _NO_MONEY:
        return BackendFailed(f"The upstream of {model} has no credit left for this router ({status}).")
    if status == 404:
        return BackendFailed(f"The upstream of {model} does not serve {upstream_model!r} at this address (404){said}")
    if status in (408, 504):
        return DeadlineExceeded(f"The upstream of {model} ran out of its own time ({status}){said}")
    if status in (429, 529):
        message = f"The upstream of {model} has too much to do ({status}). Retry after {retry_s:g} s."
        return Overloaded(message, retry_after_s=retry_s)
    if status in (400, 413, 422):
        return _callers_fault(status, fault, model)
    if status in (502, 503):
        return BackendUnavailable(f"The upstream of {model} is not available ({status}){said}")
    return BackendFailed(f"The upstream of {model} failed ({status}){said}")


def _callers_fault(status: int, fault: Fault, model: str) -> ServingError:
    message = fault.message or f"The upstream of {model} refuses this request ({status}), and does not say why."
    if status == 413 or {fault.code, fault.type} & _TOO_LONG_CODES or _TOO_LONG.search(fault.message):
        return InputTooLong(message, param="messages")
    kind = Unsupported if fault.code == "unsupported_parameter" else BadInput
    # llama.cpp names no field.
    param = fault.param or ("response_format" if _GRAMMAR.search(fault.message) else None)
    return kind(message, param=param, code=fault.code)


@contextmanager
def in_callers_words(work: Work) -> Iterator[None]:
    """A refusal that names a field as it was sent names the caller's own instead."""
    try:
        yield
    except BadInput as error:
        error.param = _callers_param(error.param or "", work) or None
        raise


def _callers_param(param: str, work: Work) -> str:
    if isinstance(work, Generation):
        return "prompt" if param.startswith("messages") else param
    found = _MESSAGE.match(param)
    if found is None:
        return param
    if work.first_message is None or int(found["index"]) < work.first_message:
        return "messages"
    return f"messages[{int(found['index']) - work.first_message}]{param[found.end() :]}"


def retry_after_s(headers: Mapping[str, str]) -> float:
    """How long the upstream asks to be left alone, at most an hour; 1 s where it does not say."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return min(max(float(headers[name]) / unit, 0.0), _LONGEST_RETRY_S)
        except (KeyError, ValueError):
            continue
    date = email.utils.parsedate_tz(headers.get("retry-after", ""))
    return 1.0 if date is None else min(max(email.utils.mktime_tz(date) - time.time(), 0.0), _LONGEST_RETRY_S)
