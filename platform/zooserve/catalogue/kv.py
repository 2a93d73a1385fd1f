"""How much memory one token's keys and values take, from what the checkpoint's config.json says of its attention."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from zooserve.catalogue.entry import Entry

__all__ = ["KvConfig", "KvDtype"]

KvDtype = Literal["float32", "float16", "bfloat16", "float8", "int8"]

_BYTES: Mapping[KvDtype, int] = MappingProxyType({"float32": 4, "float16": 2, "bfloat16": 2, "float8": 1, "int8": 1})
_KEYS_AND_VALUES = 2

Count = Annotated[int, Field(gt=0)]


class KvConfig(Entry):
    """The fields of config.json that decide it, under their own names: they can be pasted from there.

    Only attention that keeps every token's keys and values in every layer can be counted so; what else config.json may
    say is a fault.
    """

    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count | None = None
    """None: as many as attention heads."""
    head_dim: Count | None = None
    """None: the hidden size divided by the attention heads."""
    hidden_size: Count | None = None
    torch_dtype: KvDtype = "float16"
    """What the cache is kept in: the checkpoint's own type, unless the engine is told another."""
    kv_lora_rank: Any = None
    sliding_window: Any = None
    use_sliding_window: bool = True
    layer_types: tuple[str, ...] = ()

    @classmethod
    def of_checkpoint(cls, config: Mapping[str, Any], dtype: KvDtype | None = None) -> Self:
        """Read a whole config.json, in which most fields say other things; `dtype` where the cache has another.

        Raises pydantic's ValidationError naming the field.
        """
        text = config.get("text_config", config)  # of models that also see
        known = {name: text[name] for name in cls.model_fields if text.get(name) is not None}
        kept_in = dtype or text.get("torch_dtype") or text.get("dtype")
        return cls.model_validate(known | ({"torch_dtype": kept_in} if kept_in else {}))

    @property
    def bytes_per_token(self) -> int:
        """Layers x keys and values x KV heads x head dimension x bytes of the type."""
        heads = self.num_key_value_heads or self.num_attention_heads
        size = self.head_dim or (self.hidden_size or 0) // self.num_attention_heads
        return self.num_hidden_layers * _KEYS_AND_VALUES * heads * size * _BYTES[self.torch_dtype]

    @field_validator("kv_lora_rank")
    @classmethod
    def _no_latent_attention(cls, rank: Any) -> None:
        if rank is not None:
            raise ValueError(
                "multi-head latent attention keeps no keys and values of this shape; give `kv_bytes_per_token`"
            )

    @field_validator("layer_types")
    @classmethod
    def _full_attention(cls, types: tuple[str, ...]) -> tuple[str, ...]:
        if others := sorted(set(types) - {"full_attention"}):
            raise ValueError(f"layers of {', '.join(others)} do not keep every token; give `kv_bytes_per_token`")
        return types

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.sliding_window is not None and self.use_sliding_window:
            raise ValueError("`sliding_window`: such layers do not keep every token; give `kv_bytes_per_token`")
        if self.head_dim is None and self.hidden_size is None:
            raise ValueError("give `head_dim`, or `hidden_size` to divide by the attention heads")
        if self.head_dim is None and (self.hidden_size or 0) % self.num_attention_heads:
            raise ValueError("`hidden_size` is no multiple of `num_attention_heads`; give `head_dim`")
        if self.num_attention_heads % (self.num_key_value_heads or 1):
            raise ValueError("`num_attention_heads` is no multiple of `num_key_value_heads`")
        return self
