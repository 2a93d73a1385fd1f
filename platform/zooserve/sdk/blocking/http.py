# Generated from ../aio/http.py by `make sdk`: edit it there.
"""Sending calls: within their budget, tried again where that may help, every failure an error of zooserve.errors."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import cast

import httpx

from zooserve.errors import BadInput, ClientClosed
from zooserve.sdk.answers import Answer, broke_off
from zooserve.sdk.blocking.concurrency import Stream, sleep, within
from zooserve.sdk.blocking.connections import Connections, limits_of
from zooserve.sdk.budget import Budget
from zooserve.sdk.calls import Call
from zooserve.sdk.connection import Connection
from zooserve.sdk.connection_faults import fault_of_connection
from zooserve.sdk.faults import Fault, fault_of_answer
from zooserve.sdk.inputs import encoded_body
from zooserve.sdk.proxies import between, told_of
from zooserve.sdk.retries import pause_s

__all__ = ["Body", "Http"]


class Body:
    """The body of an answer that comes in pieces, and the answer's `head`."""

    def __init__(self, head: Answer, pieces: Stream[bytes], budget: Budget, require_open: Callable[[], object]) -> None:
        self.head = head
        self._pieces = pieces
        self._budget = budget
        self._require_open = require_open

    def read(self) -> bytes:
        """The next bytes, none at the end. Raises AnswerBrokeOff, or DeadlineExceeded at the end of the budget.

        ClientClosed where the client was closed meanwhile.
        """
        self._require_open()
        try:
            with within(self._budget):
                return next(self._pieces, b"")
        except httpx.TimeoutException as exc:
            raise self._budget.exceeded() from exc
        except httpx.HTTPError as exc:
            self._require_open()
            raise broke_off(self.head, str(exc) or type(exc).__name__) from exc


class Http:
    """One platform's address, and the connections to it. A client that the caller brought is left open."""

    def __init__(self, connection: Connection, max_body_bytes: int, client: httpx.Client | None) -> None:
        self.base_url = connection.base_url
        if client is not None and not isinstance(client, httpx.Client):
            raise BadInput(
                f"`http` is of type {type(client).__name__}; it must be an httpx.{httpx.Client.__name__}.",
                param="http",
            )
        self._key = connection.authorization
        self._retries = connection.retries
        self._max_body_bytes = max_body_bytes
        self._connections = Connections(connection.base_url, client)
        self._closed = False

    def close(self) -> None:
        """Close the connections; calls in flight fail. Closing again does nothing."""
        self._closed = True
        self._connections.close()

    def answered(self, call: Call) -> Answer:
        """The whole answer. Raises an error of zooserve.errors for anything but success."""
        body = self._body(call)
        failures = 0
        while True:
            with within(call.budget):
                got = self._answer(call, body)
            if isinstance(got, Answer):
                return got
            failures += 1
            self._pause(got, failures, call)

    @contextmanager
    def opened(self, call: Call) -> Iterator["Body"]:
        """An answer of status 200 whose body is still to be read; nothing is tried again once it began.

        The budget bounds it to its end. Leaving the block hangs up.
        """
        response = self._opened(call, self._body(call))
        try:
            with closing(cast("Stream[bytes]", response.iter_bytes())) as pieces:
                head = Answer(self._shown(response), dict(response.headers), b"")
                yield Body(head, pieces, call.budget, self._client)
        finally:
            response.close()

    def _opened(self, call: Call, body: bytes | None) -> httpx.Response:
        failures = 0
        while True:
            with within(call.budget):
                got = self._begun(call, body)
            if isinstance(got, httpx.Response):
                return got
            failures += 1
            self._pause(got, failures, call)

    def _answer(self, call: Call, body: bytes | None) -> Answer | Fault:
        got = self._begun(call, body)
        if isinstance(got, Fault):
            return got
        try:
            return Answer(self._shown(got), dict(got.headers), got.read())
        except httpx.TimeoutException as exc:
            raise call.budget.exceeded() from exc
        except httpx.HTTPError as exc:
            return self._by_proxy(fault_of_connection(exc, self.base_url))
        finally:
            got.close()

    def _begun(self, call: Call, body: bytes | None) -> httpx.Response | Fault:
        """The answer of one try as soon as its head is there, if that is a success."""
        client = self._client()
        request = self._request(client, call, body)
        try:
            response = client.send(request, stream=True, follow_redirects=False)
            if response.status_code == httpx.codes.OK:
                return response
            try:
                told = response.read()
            finally:
                response.close()
        except httpx.ConnectTimeout as exc:
            return self._by_proxy(fault_of_connection(exc, self.base_url))
        except httpx.TimeoutException as exc:
            raise call.budget.exceeded() from exc
        except httpx.HTTPError as exc:
            return self._by_proxy(fault_of_connection(exc, self.base_url))
        fault = fault_of_answer(response.status_code, dict(response.headers), told, str(request.url))
        return fault if "x-request-id" in response.headers else self._by_proxy(fault)

    def _by_proxy(self, fault: Fault) -> Fault:
        """The fault, with the name of the proxy that may be its cause; an answer of the platform's own is none's."""
        proxy = between(self._client(), self.base_url)
        return fault if proxy is None else fault.adding(told_of(proxy, self.base_url))

    def _shown(self, answered: httpx.Response) -> str:
        """What an error calls the source of this answer."""
        proxy = between(self._client(), self.base_url)
        return str(answered.url) if proxy is None else f"{answered.url} (by the proxy {proxy})"

    def _client(self) -> httpx.Client:
        client = None if self._closed else self._connections.client()
        if client is None or client.is_closed:
            raise ClientClosed("This client was closed; make a new one, or make the calls inside its `with` block.")
        return client

    def _request(self, client: httpx.Client, call: Call, body: bytes | None) -> httpx.Request:
        headers = {"accept": "application/json", "x-request-id": call.request_id, **self._key, **call.headers}
        if body is not None:
            headers["content-type"] = "application/json"
        return client.build_request(
            call.method,
            self.base_url + call.path,
            content=body,
            headers=headers | call.budget.headers(),
            timeout=limits_of(call.budget),
        )

    def _body(self, call: Call) -> bytes | None:
        return None if call.fields is None else encoded_body(call.fields, self._max_body_bytes)

    def _pause(self, fault: Fault, failures: int, call: Call) -> None:
        """Wait for the next try. Raises the fault's error where there is none, or no time for it."""
        seconds = pause_s(failures, fault.after_s, random.random())  # noqa: S311
        tired = failures > self._retries and not (call.patient and fault.overloaded and self._retries)
        if not fault.again or tired or seconds >= call.budget.remaining_s():
            raise fault.error
        sleep(seconds)
