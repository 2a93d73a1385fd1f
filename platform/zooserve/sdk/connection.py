"""Where a client calls, and how: arguments, then the environment, then what is usual. Nothing else here reads it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

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
        return cls(
            checked_base_url(base_url if base_url is not None else environment.get("ZOOSERVE_URL") or _DEFAULT_URL),
            None if key is None else checked_header(key, "api_key"),
            checked_seconds(timeout_s),
            retries,
        )
