"""The smallest inputs that are no text, for asking whether a model works."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a container's health check has the standard library alone
    from zooserve.catalogue import Modality

__all__ = ["SAMPLES"]

_GREY_PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000"
    "000c4944415478da63686868000003040181752e01bc0000000049454e44ae426082"
)
_SCRIPT = b"#!/bin/sh\nset -eu\necho ready\n"

SAMPLES: "Mapping[Modality, bytes]" = {"image": _GREY_PIXEL, "file": _SCRIPT}
