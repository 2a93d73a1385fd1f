"""Headers by which a client could steer Ray Serve past our own deadline and disconnect watch: taken off first of all.

`x-request-disconnect-disabled: ?1` switches cancellation off, `x-request-timeout-seconds: 1` makes Ray answer a plain
text 408, `serve_multiplexed_model_id` and `x-session-id` choose replicas. Ray reads them before the app is called, so
this sits outside Ray's own entry point: RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH names `middlewares`.
"""

from collections.abc import Iterable

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["WithoutSteering", "middlewares"]

_STEERING = frozenset(
    {
        b"x-request-disconnect-disabled",
        b"x-request-timeout-seconds",
        b"serve-multiplexed-model-id",
        b"x-session-id",
    }
)
_REQUEST_ID = b"x-request-id"

Header = tuple[bytes, bytes]


class WithoutSteering:
    """Passes requests on without Ray's steering headers, and answers with a single request id."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_once(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _with_one_request_id(message.get("headers", ()))
            await send(message)

        headers = [header for header in scope["headers"] if not _is_dropped(*header)]
        await self._app({**scope, "headers": headers}, receive, send_once)


def middlewares() -> list[Middleware]:
    """What Ray Serve wraps around a replica's entry point; Ray calls this by its import path."""
    return [Middleware(WithoutSteering)]


def _is_dropped(name: bytes, value: bytes) -> bool:
    """Steering, or a request id that is not text: Ray fails to decode that, with a plain-text 500."""
    return _canonical(name) in _STEERING or (_canonical(name) == _REQUEST_ID and not value.isascii())


def _canonical(name: bytes) -> bytes:
    return name.lower().replace(b"_", b"-")


def _with_one_request_id(headers: Iterable[Header]) -> list[Header]:
    """Ray adds its own x-request-id behind the app's: the first stays."""
    kept: list[Header] = []
    seen = False
    for name, value in headers:
        is_id = name.lower() == _REQUEST_ID
        if not (is_id and seen):
            kept.append((name, value))
        seen = seen or is_id
    return kept
