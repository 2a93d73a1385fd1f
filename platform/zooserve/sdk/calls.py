"""One call of the API, before it is sent: what is asked of which route, in which budget, under which id."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zooserve.sdk.budget import Budget

__all__ = ["Call", "new_request_id"]


def new_request_id() -> str:
    """As the router makes them, so that one look at a log tells what it is."""
    return f"req_{secrets.token_hex(12)}"


@dataclass(frozen=True)
class Call:
    """`path` begins with a slash. Without `fields` it is a GET, else a POST of them as JSON.

    All tries and parts of a call share one request id: a canary's draw is by it, so that they meet one release. A
    `patient` one, a part of many or bulk work, asks an overloaded platform again as long as its budget lasts: whatever
    it is a part of would be lost with it.
    """

    path: str
    budget: Budget
    fields: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    request_id: str = field(default_factory=new_request_id)
    patient: bool = False

    @property
    def is_bulk(self) -> bool:
        """Whether it is work that gives way to interactive callers."""
        return self.headers.get("x-zooserve-class") == "bulk"

    @property
    def method(self) -> str:
        """Of HTTP."""
        return "GET" if self.fields is None else "POST"

    def asking(self, fields: Mapping[str, Any], *, patient: bool = False) -> "Call":
        """The same call with these fields."""
        return replace(self, fields=fields, patient=patient)
