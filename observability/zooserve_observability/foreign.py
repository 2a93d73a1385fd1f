"""Series that others export beside ours, as far as dashboards and rules use them: what they are and where they exist.

Each is scraped from its own server: Triton's metrics port, HAProxy's exporter, Ray's agent, Qdrant, vLLM.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["FOREIGN", "ForeignMetric", "Requires"]

Requires = Literal["", "gpu", "tensorrt_llm", "vllm", "qdrant"]
"""What must be there for a series to exist; empty where every embedded platform has it."""


@dataclass(frozen=True)
class ForeignMetric:
    """One family that is not ours."""

    series: str
    """As a query writes it; a histogram's without `_bucket`, `_sum` or `_count`."""
    kind: Literal["counter", "gauge", "histogram", "summary"]
    source: Literal["triton", "leaf", "haproxy", "ray", "qdrant", "vllm"]
    labels: tuple[str, ...]
    requires: Requires = ""


_TRITON = ("model", "version")

INFERENCES = ForeignMetric("nv_inference_count", "counter", "triton", _TRITON)
EXECUTIONS = ForeignMetric("nv_inference_exec_count", "counter", "triton", _TRITON)
REQUEST_SUCCESS = ForeignMetric("nv_inference_request_success", "counter", "triton", _TRITON)
REQUEST_FAILURE = ForeignMetric("nv_inference_request_failure", "counter", "triton", (*_TRITON, "reason"))
REQUEST_TIME = ForeignMetric("nv_inference_request_duration_us", "counter", "triton", _TRITON)
QUEUE_TIME = ForeignMetric("nv_inference_queue_duration_us", "counter", "triton", _TRITON)
COMPUTE_INPUT_TIME = ForeignMetric("nv_inference_compute_input_duration_us", "counter", "triton", _TRITON)
COMPUTE_INFER_TIME = ForeignMetric("nv_inference_compute_infer_duration_us", "counter", "triton", _TRITON)
COMPUTE_OUTPUT_TIME = ForeignMetric("nv_inference_compute_output_duration_us", "counter", "triton", _TRITON)
PENDING = ForeignMetric("nv_inference_pending_request_count", "gauge", "triton", _TRITON)
QUEUE_SUMMARY = ForeignMetric("nv_inference_queue_summary_us", "summary", "triton", (*_TRITON, "quantile"))
REQUEST_SUMMARY = ForeignMetric("nv_inference_request_summary_us", "summary", "triton", (*_TRITON, "quantile"))
FIRST_RESPONSE = ForeignMetric("nv_inference_first_response_histogram_ms", "histogram", "triton", _TRITON)

LEAF_REQUESTS = ForeignMetric("nv_trt_llm_request_metrics", "gauge", "leaf", (*_TRITON, "request_type"))
LEAF_KV_BLOCKS = ForeignMetric("nv_trt_llm_kv_cache_block_metrics", "gauge", "leaf", (*_TRITON, "kv_cache_block_type"))
LEAF_BATCHER = ForeignMetric(
    "nv_trt_llm_inflight_batcher_metrics", "gauge", "leaf", (*_TRITON, "inflight_batcher_specific_metric"),
    requires="tensorrt_llm",
)  # fmt: skip

GPU_MEMORY_USED = ForeignMetric("nv_gpu_memory_used_bytes", "gauge", "triton", ("gpu_uuid",), requires="gpu")
GPU_MEMORY_TOTAL = ForeignMetric("nv_gpu_memory_total_bytes", "gauge", "triton", ("gpu_uuid",), requires="gpu")
GPU_UTILISATION = ForeignMetric("nv_gpu_utilization", "gauge", "triton", ("gpu_uuid",), requires="gpu")

FOREIGN: tuple[ForeignMetric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, ForeignMetric)
)
"""All of them, in the order in which they stand here."""
