"""Who calls, told from the key that a request came with, and never so that the key could be had from it."""

import hashlib
import re
import secrets
from collections.abc import Mapping

from zooserve_router.context import ANONYMOUS

__all__ = ["KeyIds"]

_BYTES = 6
_BEARER = re.compile(rb"bearer\s+", re.IGNORECASE)


class KeyIds:
    """Names keys: one key has one name, wherever and whenever it is named with the same salt."""

    def __init__(self, salt: str = "") -> None:
        """Without a salt, the names are good for this process alone."""
        self._salt = hashlib.blake2b(salt.encode() or secrets.token_bytes(32)).digest()

    def of(self, headers: Mapping[bytes, bytes]) -> str:
        """12 hexadecimal digits, the same for `Authorization: Bearer KEY` and `x-api-key: KEY`."""
        given = headers.get(b"authorization") or headers.get(b"x-api-key")
        if not given:
            return ANONYMOUS
        key = _BEARER.sub(b"", given, count=1) if _BEARER.match(given) else given
        return hashlib.blake2b(key, key=self._salt, digest_size=_BYTES).hexdigest()
