"""Errors in the caller's dialect: one table of status codes, and the error body each family of clients parses."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal

from zooserve import errors

__all__ = [
    "SHAPES",
    "STATUS",
    "Dialect",
    "cohere_error",
    "dialect_of_path",
    "error_headers",
    "kserve_error",
    "openai_error",
    "status_of",
    "tei_error",
]

Dialect = Literal["openai", "cohere", "kserve", "tei"]

STATUS: dict[type[errors.ServingError], int] = {
    errors.BadInput: 400,
    errors.InputTooLong: 400,
    errors.TooManyItems: 400,
    errors.Unsupported: 400,
    errors.TemplateFailed: 400,
    errors.BodyTooLarge: 413,
    errors.ModelNotFound: 404,
    errors.OtherEmbeddingSpace: 409,
    errors.RouteNotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.Overloaded: 429,
    errors.BackendUnavailable: 503,
    errors.BackendFailed: 502,
    errors.DeadlineExceeded: 504,
    errors.InternalError: 500,
}

# OpenAI's own words for the `type` of an error, by status; anything else of the 4xx is an invalid request.
_OPENAI_TYPE = {429: "rate_limit_error", 504: "timeout_error", **dict.fromkeys((500, 502, 503), "server_error")}

# text-embeddings-inference's words for the same; anything else of the 4xx is a failed validation.
_TEI_TYPE = {429: "Overloaded", 503: "Unhealthy", **dict.fromkeys((500, 502, 504), "Backend")}


def status_of(error: errors.ServingError) -> int:
    """The HTTP status of an error, from the table."""
    return STATUS[type(error)]


def openai_error(error: errors.ServingError) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`, as openai-python parses it, and beside it the stage that failed."""
    kind = _OPENAI_TYPE.get(status_of(error), "invalid_request_error")
    told: dict[str, Any] = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    if error.failed is not None:
        told["failed_stage"] = asdict(error.failed)
    return {"error": told}


def cohere_error(error: errors.ServingError) -> dict[str, Any]:
    """`{"message": ...}`, as cohere-python and Jina's clients parse it."""
    return {"message": error.message}


def kserve_error(error: errors.ServingError) -> dict[str, Any]:
    """`{"error": text}`, as KServe v2 has it and tritonclient parses it."""
    return {"error": error.message}


def tei_error(error: errors.ServingError) -> dict[str, Any]:
    """`{"error": text, "error_type": ...}`, as text-embeddings-inference has it."""
    return {"error": error.message, "error_type": _TEI_TYPE.get(status_of(error), "Validation")}


SHAPES: dict[Dialect, Callable[[errors.ServingError], dict[str, Any]]] = {
    "openai": openai_error,
    "cohere": cohere_error,
    "kserve": kserve_error,
    "tei": tei_error,
}


def dialect_of_path(path: str) -> Dialect:
    """Which family of clients calls this path."""
    if path.endswith("/rerank"):
        return "cohere"
    if path == "/embed_sparse":
        return "tei"
    if path == "/v2" or path.startswith("/v2/"):
        return "kserve"
    return "openai"


def error_headers(error: errors.ServingError) -> dict[str, str]:
    """`x-zooserve-error-code`, the kind's, which most dialects' bodies have no room for, and what else is known.

    `x-zooserve-failed-stage` where a stage failed, `Retry-After` (s) and `retry-after-ms` for when to come back.
    """
    told = {"x-zooserve-error-code": str(type(error).code)}
    if isinstance(error, errors.OtherEmbeddingSpace):
        return told | {"x-should-retry": "false"}  # OpenAI's clients try a 409 again
    if error.failed is not None:
        told["x-zooserve-failed-stage"] = error.failed.label
    if not isinstance(error, errors.Overloaded | errors.BackendUnavailable) or error.retry_after_s is None:
        return told
    return told | {
        "retry-after": str(max(1, round(error.retry_after_s))),
        "retry-after-ms": str(max(1, round(error.retry_after_s * 1000))),
    }
