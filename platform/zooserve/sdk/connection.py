"""Where a client calls, and how: arguments, then the environment, then what is usual. Nothing else here reads it."""

import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from zooserve.errors import BadInput
from zooserve.sdk.budget import checked_seconds
from zooserve.sdk.inputs import checked_base_url, checked_header

__all__ = ["Connection"]

_DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Connection:
    """Checked settings of one client."""

    base_url: str
    api_key: str | None
    timeout_s: float
    retries: int
    user: str | None = field(default=None, repr=False)
    """`name:password` of the address, which is shown without them in every error."""

    @property
    def authorization(self) -> dict[str, str]:
        """The header that says who calls; none for nobody."""
        if self.api_key is not None:
            return {"authorization": f"Bearer {self.api_key}"}
        if self.user is not None:
            return {"authorization": f"Basic {b64encode(unquote(self.user).encode()).decode()}"}
        return {}

    @classmethod
    def of(
        cls,
        base_url: str | None,
        api_key: str | None,
        timeout_s: float,
        retries: int,
        environment: Mapping[str, str] = os.environ,
    ) -> "Connection":
        """Raises BadInput, naming the argument."""
        key = api_key if api_key is not None else environment.get("ZOOSERVE_API_KEY") or None
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise BadInput(f"`retries` is {retries!r}; it must be an integer of at least 0.", param="retries")
        url, user = checked_base_url(
            base_url if base_url is not None else environment.get("ZOOSERVE_URL") or _DEFAULT_URL
        )
        return cls(
            url, None if key is None else checked_header(key, "api_key"), checked_seconds(timeout_s), retries, user
        )
