"""A request's tensors read into a `Call`, and a job's state rendered as the text of the output tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zooserve.errors import BadInput, Unsupported
from zooserve.leaf.job import Finished, Job
from zooserve.leaf.sampling import Sampling

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Call", "answer", "is_stop", "read_call"]

Tensors = Mapping[str, "NDArray[Any]"]

# What NVIDIA's model takes and this engine has no use for: refused, because ignoring it would change the answer.
_NOT_HERE = ("image_url", "sampling_param_logits_post_processor_name", "lora_id", "lora_name", "lora_path")


@dataclass(frozen=True)
class Call:
    """What one request asks for."""

    prompt: str
    sampling: Sampling
    streaming: bool = False
    echo: bool = True
    """The answer begins with the prompt, unless the caller says otherwise."""
    perf_metrics: bool = False
    finish_reason: bool = False
    stop_reason: bool = False


def is_stop(tensors: Tensors) -> bool:
    """Whether this request only ends the one that has its id."""
    return bool(_scalar(tensors, "stop"))


def read_call(tensors: Tensors) -> Call:
    """Read a request. Raises BadInput or Unsupported naming the tensor at fault."""
    for name in _NOT_HERE:
        if name in tensors:
            raise Unsupported(f"{name} is not available on this leaf", param=name)
    return Call(
        prompt=_prompt(tensors),
        sampling=_sampling(tensors),
        streaming=bool(_scalar(tensors, "streaming")),
        echo=not _scalar(tensors, "sampling_param_exclude_input_from_output"),
        perf_metrics=bool(_scalar(tensors, "sampling_param_return_perf_metrics")),
        finish_reason=bool(_scalar(tensors, "return_finish_reason")),
        stop_reason=bool(_scalar(tensors, "return_stop_reason")),
    )


def answer(call: Call, job: Job, tokens_per_block: int) -> dict[str, str]:
    """The output tensors of one response, as text; perf figures come with the last one."""
    outputs = {"text_output": (call.prompt if call.echo else "") + job.text}
    finish = job.outcome if isinstance(job.outcome, Finished) else None
    if call.finish_reason:
        outputs["finish_reason"] = str(finish.reason if finish else None)
    if call.stop_reason:
        outputs["stop_reason"] = str(finish.stop_string if finish else None)
    if call.sampling.cumulative_logprob:
        outputs["cumulative_logprob"] = str(job.cumulative_logprob)
    if call.perf_metrics and finish:
        outputs |= {name: str(value) for name, value in _perf(job, tokens_per_block).items()}
    return outputs


def _perf(job: Job, tokens_per_block: int) -> dict[str, int | float]:
    prompt_blocks = -(-job.prompt_tokens // tokens_per_block)
    all_blocks = -(-(job.prompt_tokens + job.generated_tokens) // tokens_per_block)
    reused = job.cached_tokens // tokens_per_block
    return {
        "kv_cache_reused_block": reused,
        "kv_cache_missed_block": prompt_blocks - reused,
        "kv_cache_alloc_new_blocks": all_blocks - reused,
        "kv_cache_alloc_total_blocks": all_blocks,
        "kv_cache_hit_rate": reused / prompt_blocks if prompt_blocks else 0.0,
        "arrival_time_ns": job.arrival_ns,
        "first_scheduled_time_ns": job.first_scheduled_ns,
        "first_token_time_ns": job.first_token_ns,
        "last_token_time_ns": job.last_token_ns,
        "acceptance_rate": 0.0,
        "total_accepted_draft_tokens": 0,
        "total_draft_tokens": 0,
    }


def _prompt(tensors: Tensors) -> str:
    texts = tensors.get("text_input")
    if texts is None or texts.size == 0:
        raise BadInput("text_input is missing from the request", param="text_input")
    if texts.ndim > 1:
        raise BadInput("text_input must have one dimension", param="text_input")
    return _text(texts[0], "text_input")


def _sampling(tensors: Tensors) -> Sampling:
    numbers = {
        name: value
        for name in (
            "max_tokens",
            "temperature",
            "top_k",
            "top_p",
            "frequency_penalty",
            "presence_penalty",
            "seed",
            "best_of",
        )
        if (value := _scalar(tensors, f"sampling_param_{name}")) is not None
    }
    stops = tensors.get("sampling_param_stop")
    return Sampling(
        **numbers,
        stop=() if stops is None else tuple(_text(stop, "sampling_param_stop") for stop in stops.ravel()),
        cumulative_logprob=bool(_scalar(tensors, "return_cumulative_logprob")),
    )


def _scalar(tensors: Tensors, name: str) -> Any:
    values = tensors.get(name)
    if values is None:
        return None
    if values.size != 1:
        raise BadInput(f"Expected a scalar tensor for tensor {name}", param=name)
    return values.item(0)


def _text(value: bytes | str, name: str) -> str:
    if isinstance(value, str):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise BadInput(f"{name} is not UTF-8: {exc}", param=name) from exc
