"""What the stand-ins share: the leaf's engine over llama.cpp, asked with what the leaf's own contract cannot say."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from zooserve.leaf.engine import Engine
from zooserve.leaf.llama import Llama, load_engine_settings
from zooserve.leaf.sampling import Sampling

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


@dataclass(frozen=True)
class FullSampling(Sampling):
    """The leaf's sampling, with fields of llama.cpp's own: a grammar, log probabilities."""

    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_llama(self, context_tokens: int) -> dict[str, Any]:
        return {**super().to_llama(context_tokens), **self.extra}


class RecordingLlama:
    """A Llama that keeps the log probabilities which the engine drops, for the thread that decodes."""

    def __init__(self, llama: Llama) -> None:
        self._llama = llama
        self._of_thread = threading.local()

    def complete(self, prompt: str, fields: Mapping[str, Any], on_chunk: Callable[[dict[str, Any]], bool]) -> None:
        self._of_thread.tokens = []

        def recorded(chunk: dict[str, Any]) -> bool:
            for choice in chunk.get("choices", ()):
                self._of_thread.tokens += (choice.get("logprobs") or {}).get("content", ())
            return on_chunk(chunk)

        self._llama.complete(prompt, fields, recorded)

    def take_tokens(self) -> list[dict[str, Any]]:
        """The tokens that came since the last call, on this thread."""
        tokens, self._of_thread.tokens = self._of_thread.tokens, []
        return tokens

    def cached_tokens(self) -> int:
        return self._llama.cached_tokens()

    def close(self) -> None:
        self._llama.close()


def opened(folder: Path) -> tuple[Engine, RecordingLlama]:
    """The engine that a model's `model.yaml` describes."""
    settings = load_engine_settings(folder / "model.yaml")
    llama = RecordingLlama(Llama(settings))
    return Engine(settings, llama), llama


def tensors_of(request: Any) -> dict[str, Any]:
    return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}


def text(name: str, value: str) -> Any:
    return pb_utils.Tensor(name, np.array([value.encode()], dtype=np.object_))


def active_gauge(args: Mapping[str, str]) -> Any:
    """How many requests the engine works on, as TensorRT-LLM's metric says it."""
    family = pb_utils.MetricFamily(
        name="nv_trt_llm_request_metrics", description="TRT LLM request metrics", kind=pb_utils.MetricFamily.GAUGE
    )
    labels = {"model": args["model_name"], "version": args["model_version"], "request_type": "active"}
    return family, family.Metric(labels=labels)


class ActiveSampler:
    """Tells the metric, from one thread."""

    def __init__(self, engine: Engine, args: Mapping[str, str]) -> None:
        self._family, self._active = active_gauge(args)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._sample, args=(engine,))
        self._thread.start()

    def _sample(self, engine: Engine) -> None:
        while not self._closing.wait(0.05):
            self._active.set(engine.usage().active)

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
