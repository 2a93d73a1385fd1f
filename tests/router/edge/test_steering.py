from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from zooserve_router.steering import WithoutSteering, middlewares


class App:
    """Remembers what reached it, and answers with the headers it was given."""

    def __init__(self, *answer: tuple[bytes, bytes]) -> None:
        self.answer = list(answer)
        self.headers: list[tuple[bytes, bytes]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers = scope["headers"]
        await send({"type": "http.response.start", "status": 200, "headers": self.answer})


async def through(app: App, *headers: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope: dict[str, Any] = {"type": "http", "headers": list(headers)}
    await WithoutSteering(app)(scope, receive, send)
    return list(sent[0]["headers"])


@pytest.mark.parametrize(
    "name",
    [
        b"x-request-disconnect-disabled",
        b"X-Request-Timeout-Seconds",
        b"serve_multiplexed_model_id",
        b"x_request_timeout_seconds",
        b"X-Session-Id",
    ],
)
async def test_headers_that_steer_ray_do_not_reach_it(name: bytes) -> None:
    app = App()
    await through(app, (name, b"?1"), (b"accept", b"*/*"))
    assert app.headers == [(b"accept", b"*/*")]


async def test_a_request_id_that_is_not_text_does_not_reach_ray() -> None:
    app = App()
    await through(app, (b"x-request-id", b"a\xe9"), (b"accept", b"*/*"))
    assert app.headers == [(b"accept", b"*/*")]
    await through(app, (b"x-request-id", b"mine"))
    assert app.headers == [(b"x-request-id", b"mine")]


async def test_our_own_deadline_header_passes() -> None:
    app = App()
    await through(app, (b"x-request-timeout-ms", b"500"))
    assert app.headers == [(b"x-request-timeout-ms", b"500")]


async def test_of_two_request_ids_the_apps_own_is_answered() -> None:
    answered = await through(App((b"x-request-id", b"ours"), (b"X-Request-ID", b"rays")))
    assert answered == [(b"x-request-id", b"ours")]


@pytest.mark.filterwarnings("ignore")  # importing Ray warns
def test_ray_can_call_it_by_its_import_path() -> None:
    from ray.serve._private.http_util import validate_http_proxy_callback_return

    assert [each.cls for each in validate_http_proxy_callback_return(middlewares())] == [WithoutSteering]


@pytest.mark.filterwarnings("ignore")
def test_ray_still_reads_the_headers_by_these_names() -> None:
    from ray.serve._private import constants

    assert constants.SERVE_HTTP_REQUEST_TIMEOUT_S_HEADER == "x-request-timeout-seconds"
    assert constants.SERVE_HTTP_REQUEST_DISCONNECT_DISABLED_HEADER == "x-request-disconnect-disabled"
    assert constants.SERVE_MULTIPLEXED_MODEL_ID == "serve_multiplexed_model_id"
    assert constants.SERVE_SESSION_ID == "x-session-id"
