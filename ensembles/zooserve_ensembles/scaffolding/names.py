"""What a new model may be called."""

import re
from collections.abc import Collection, Sequence

from zooserve.errors import ScaffoldRefused

__all__ = ["refuse_names"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")


def refuse_names(names: Sequence[str], taken: Collection[str]) -> None:
    """Raises ScaffoldRefused for a name of another form, or one that a folder or the catalogue has already."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise ScaffoldRefused(
                f"{name[:100]!r} is no name for a model: lower-case letters, digits and underscores, a letter first, "
                "at most 100 of them."
            )
        if name in taken:
            raise ScaffoldRefused(f"{name} is taken, by a folder of this repository or by the catalogue: name another.")
