"""The tensors of TensorRT-LLM's llmapi Triton model, as data: what the leaf takes and what it answers.

Streaming `text_output` is cumulative. Every output arrives as BYTES holding text, also where the configuration
declares a number, and a missing value is the text "None": `parse_number` reads them back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

__all__ = [
    "CANCELLED",
    "DEFAULT_MAX_TOKENS",
    "ERROR_PREFIX",
    "INPUTS",
    "MODEL_NAME",
    "NOT_AVAILABLE",
    "OUTPUTS",
    "PERF_OUTPUTS",
    "STOP_NEEDS_ID",
    "Datatype",
    "Tensor",
    "parse_number",
]

Datatype = Literal["BOOL", "BYTES", "FP32", "INT32", "INT64", "UINT64"]

MODEL_NAME = "tensorrt_llm"
DEFAULT_MAX_TOKENS = 32
"""What TensorRT-LLM's SamplingParams grants when the request names no bound."""
ERROR_PREFIX = "Error generating request: "
CANCELLED = "Request cancelled by client"
STOP_NEEDS_ID = "A request id must be provided for request cancellation"
NOT_AVAILABLE = "N/A"
"""`text_output` of an error response."""


@dataclass(frozen=True)
class Tensor:
    """One tensor: its datatype as the KServe protocol spells it, and its shape (-1: any length)."""

    name: str
    datatype: Datatype
    dims: tuple[int, ...]
    optional: bool = False

    @property
    def config_type(self) -> str:
        """The datatype as config.pbtxt spells it."""
        return "TYPE_STRING" if self.datatype == "BYTES" else f"TYPE_{self.datatype}"


def _named(*tensors: Tensor) -> Mapping[str, Tensor]:
    return MappingProxyType({tensor.name: tensor for tensor in tensors})


def _optional(name: str, datatype: Datatype, dims: tuple[int, ...] = (1,)) -> Tensor:
    return Tensor(name, datatype, dims, optional=True)


INPUTS = _named(
    Tensor("text_input", "BYTES", (-1,)),
    _optional("image_url", "BYTES", (-1,)),
    _optional("streaming", "BOOL"),
    _optional("sampling_param_best_of", "INT32"),
    _optional("sampling_param_temperature", "FP32"),
    _optional("sampling_param_top_k", "INT32"),
    _optional("sampling_param_top_p", "FP32"),
    _optional("sampling_param_frequency_penalty", "FP32"),
    _optional("sampling_param_presence_penalty", "FP32"),
    _optional("sampling_param_max_tokens", "INT32"),
    _optional("sampling_param_stop", "BYTES", (-1,)),
    _optional("sampling_param_seed", "UINT64"),
    _optional("sampling_param_exclude_input_from_output", "BOOL"),
    _optional("sampling_param_return_perf_metrics", "BOOL"),
    _optional("sampling_param_logits_post_processor_name", "BYTES"),
    _optional("return_finish_reason", "BOOL"),
    _optional("return_stop_reason", "BOOL"),
    _optional("return_cumulative_logprob", "BOOL"),
    _optional("stop", "BOOL"),
    _optional("lora_id", "UINT64"),
    _optional("lora_name", "BYTES"),
    _optional("lora_path", "BYTES"),
    _optional("lora_ckpt_source", "BYTES"),
)

OUTPUTS = _named(
    Tensor("text_output", "BYTES", (-1,)),
    Tensor("finish_reason", "BYTES", (-1,)),
    Tensor("stop_reason", "BYTES", (-1,)),
    Tensor("cumulative_logprob", "FP32", (-1,)),
    Tensor("kv_cache_reused_block", "INT32", (-1,)),
    Tensor("kv_cache_missed_block", "INT32", (-1,)),
    Tensor("kv_cache_alloc_new_blocks", "INT32", (-1,)),
    Tensor("kv_cache_alloc_total_blocks", "INT32", (-1,)),
    Tensor("kv_cache_hit_rate", "FP32", (-1,)),
    Tensor("arrival_time_ns", "INT64", (1,)),
    Tensor("first_scheduled_time_ns", "INT64", (1,)),
    Tensor("first_token_time_ns", "INT64", (1,)),
    Tensor("last_token_time_ns", "INT64", (1,)),
    Tensor("acceptance_rate", "FP32", (1,)),
    Tensor("total_accepted_draft_tokens", "INT32", (1,)),
    Tensor("total_draft_tokens", "INT32", (1,)),
)

PERF_OUTPUTS = tuple(list(OUTPUTS)[4:])
"""What the last response of a request with `sampling_param_return_perf_metrics` carries besides its text."""


def parse_number(value: bytes | str) -> float | None:
    """The number in a BYTES output; None where the leaf had none."""
    text = value.decode() if isinstance(value, bytes) else value
    return None if text == "None" else float(text)
