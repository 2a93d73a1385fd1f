"""Series that others export beside ours, as far as dashboards and rules use them: what they are and where they exist.

Each is scraped from its own server: Triton's metrics port, HAProxy's exporter, Ray's agent, Qdrant, vLLM, Collector.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["FOREIGN", "ForeignMetric", "Requires"]

Requires = Literal["", "gpu", "tensorrt_llm", "vllm", "qdrant", "collector"]
"""What must be there for a series to exist; empty where every embedded platform has it."""


@dataclass(frozen=True)
class ForeignMetric:
    """One family that is not ours."""

    series: str
    """As a query writes it; a histogram's without `_bucket`, `_sum` or `_count`."""
    kind: Literal["counter", "gauge", "histogram", "summary"]
    source: Literal["triton", "leaf", "haproxy", "ray", "qdrant", "vllm", "collector", "spanmetrics"]
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
# Not in 2.51, which the embedded platform has; a Triton that has it shows it of decoupled models.
FIRST_RESPONSE = ForeignMetric(
    "nv_inference_first_response_histogram_ms", "histogram", "leaf", _TRITON, requires="tensorrt_llm"
)
CACHE_HITS = ForeignMetric("nv_cache_num_hits_per_model", "counter", "triton", _TRITON)
CACHE_MISSES = ForeignMetric("nv_cache_num_misses_per_model", "counter", "triton", _TRITON)

# Of our ONNX Runtime backend and our embedded leaf, on the page of the Triton that runs them.
BACKEND_RUNS = ForeignMetric("zooserve_onnx_runs", "counter", "triton", _TRITON)
BACKEND_ELEMENTS = ForeignMetric("zooserve_onnx_run_elements", "counter", "triton", _TRITON)
INSTANCE_RUNS = ForeignMetric("zooserve_instance_runs_total", "counter", "triton", (*_TRITON, "model_instance"))
LEAF_KV_TOKENS = ForeignMetric("zooserve_leaf_kv_tokens", "gauge", "leaf", (*_TRITON, "kv_state"))
LEAF_GENERATED = ForeignMetric("zooserve_leaf_generated_tokens_total", "counter", "leaf", _TRITON)

LEAF_REQUESTS = ForeignMetric("nv_trt_llm_request_metrics", "gauge", "leaf", (*_TRITON, "request_type"))
LEAF_KV_BLOCKS = ForeignMetric("nv_trt_llm_kv_cache_block_metrics", "gauge", "leaf", (*_TRITON, "kv_cache_block_type"))
LEAF_BATCHER = ForeignMetric(
    "nv_trt_llm_inflight_batcher_metrics", "gauge", "leaf", (*_TRITON, "inflight_batcher_specific_metric"),
    requires="tensorrt_llm",
)  # fmt: skip

GPU_MEMORY_USED = ForeignMetric("nv_gpu_memory_used_bytes", "gauge", "triton", ("gpu_uuid",), requires="gpu")
GPU_MEMORY_TOTAL = ForeignMetric("nv_gpu_memory_total_bytes", "gauge", "triton", ("gpu_uuid",), requires="gpu")
GPU_UTILISATION = ForeignMetric("nv_gpu_utilization", "gauge", "triton", ("gpu_uuid",), requires="gpu")

HAPROXY_SESSIONS = ForeignMetric("haproxy_frontend_current_sessions", "gauge", "haproxy", ("proxy",))
HAPROXY_LIMIT = ForeignMetric("haproxy_frontend_limit_sessions", "gauge", "haproxy", ("proxy",))
HAPROXY_WORKING = ForeignMetric("haproxy_backend_current_sessions", "gauge", "haproxy", ("proxy",))
HAPROXY_QUEUE = ForeignMetric("haproxy_backend_current_queue", "gauge", "haproxy", ("proxy",))
HAPROXY_SERVERS = ForeignMetric("haproxy_backend_active_servers", "gauge", "haproxy", ("proxy",))

RAY_REPLICAS = ForeignMetric(
    "ray_serve_deployment_replica_healthy", "gauge", "ray", ("application", "deployment", "replica")
)
RAY_TARGET_REPLICAS = ForeignMetric(
    "ray_serve_autoscaling_target_replicas", "gauge", "ray", ("application", "deployment")
)
RAY_COMPONENT_MEMORY = ForeignMetric("ray_component_rss_bytes", "gauge", "ray", ("Component",))
RAY_COMPONENT_CPU = ForeignMetric("ray_component_cpu_percentage", "gauge", "ray", ("Component",))
NODE_MEMORY_USED = ForeignMetric("ray_node_mem_used", "gauge", "ray", ("ip",))
NODE_MEMORY_TOTAL = ForeignMetric("ray_node_mem_total", "gauge", "ray", ("ip",))
NODE_CPU = ForeignMetric("ray_node_cpu_utilization", "gauge", "ray", ("ip",))

_VLLM = ("model_name",)
VLLM_RUNNING = ForeignMetric("vllm:num_requests_running", "gauge", "vllm", _VLLM, requires="vllm")
VLLM_WAITING = ForeignMetric("vllm:num_requests_waiting", "gauge", "vllm", _VLLM, requires="vllm")
VLLM_KV_USAGE = ForeignMetric("vllm:kv_cache_usage_perc", "gauge", "vllm", _VLLM, requires="vllm")
VLLM_GENERATED = ForeignMetric("vllm:generation_tokens_total", "counter", "vllm", _VLLM, requires="vllm")
VLLM_FIRST_TOKEN = ForeignMetric("vllm:time_to_first_token_seconds", "histogram", "vllm", _VLLM, requires="vllm")

# Its names say nothing of Qdrant: ask for the job, too.
_REST = ("method", "endpoint", "status")
QDRANT_RESPONSES = ForeignMetric("rest_responses_total", "counter", "qdrant", _REST, requires="qdrant")
QDRANT_DURATION = ForeignMetric("rest_responses_duration_seconds", "histogram", "qdrant", _REST, requires="qdrant")
QDRANT_MEMORY = ForeignMetric("memory_resident_bytes", "gauge", "qdrant", (), requires="qdrant")

# As observability/otel/collector.yaml has it spell them; of itself, and of the spans that come.
COLLECTOR_REFUSED = ForeignMetric(
    "otelcol_receiver_refused_spans_total", "counter", "collector", ("receiver", "transport"), requires="collector"
)
COLLECTOR_NOT_SENT = ForeignMetric(
    "otelcol_exporter_send_failed_spans_total", "counter", "collector", ("exporter",), requires="collector"
)
COLLECTOR_NOT_QUEUED = ForeignMetric(
    "otelcol_exporter_enqueue_failed_spans_total", "counter", "collector", ("exporter",), requires="collector"
)
COLLECTOR_UNDECIDED = ForeignMetric(
    "otelcol_processor_tail_sampling_sampling_trace_dropped_too_early_total", "counter", "collector", (),
    requires="collector",
)  # fmt: skip
SPAN_DURATION = ForeignMetric(
    "traces_span_metrics_duration_seconds", "histogram", "spanmetrics",
    ("service_name", "span_name", "span_kind", "status_code", "zooserve_model", "zooserve_model_version",
     "zooserve_slo_class"),
    requires="collector",
)  # fmt: skip

FOREIGN: tuple[ForeignMetric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, ForeignMetric)
)
"""All of them, in the order in which they stand here."""
