"""What an engine server is told by whoever starts it."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from zooserve.settings import EngineServerSettings

__all__ = ["EngineOrders"]


class EngineOrders(BaseModel):
    """Where to listen, what to serve, who may ask. In a file that only its owner reads: the key is in it."""

    model_config = ConfigDict(frozen=True)

    host: str
    port: int
    key: str = Field(min_length=1, repr=False)
    """Without one, llama.cpp's server would answer every user of this machine."""
    gguf: Path
    names: tuple[str, ...] = Field(min_length=1)
    """What the model is called; the first is its id."""
    slots: int
    context_per_slot: int
    batch_tokens: int
    threads: int
    cache_ram_mib: int

    @classmethod
    def of(cls, settings: EngineServerSettings, repository: Path, names: Iterable[str]) -> "EngineOrders":
        """The orders that these settings mean, whose port and key are set."""
        values = settings.model_dump(include=set(cls.model_fields))
        return cls(**{**values, "gguf": repository / settings.gguf, "names": tuple(names)})
