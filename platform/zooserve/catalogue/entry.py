"""What every entry of the catalogue file has in common."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Entry"]


class Entry(BaseModel):
    """One mapping of the file: it never changes, and an unknown field in it is a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid")
