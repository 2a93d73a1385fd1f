"""llama.cpp's server engine in this process, through xllamacpp: one blocking call per request, batched inside.

Measured traps that this file answers: without an api key the listener that the binding always opens serves every local
user; the prompt cache in RAM defaults to 8 GiB; libgomp's default spinning drops decoding from 101 to 6 tokens/s beside
one busy neighbour; only a callback can cancel, and only return_progress with a small batch calls it during prefill.
"""

import json
import logging
import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field

from zooserve.errors import MissingPart
from zooserve.unproxied import open_unproxied

__all__ = ["EngineSettings", "Llama", "load_engine_settings"]

_log = logging.getLogger(__name__)


class EngineSettings(BaseModel):
    """The engine's knobs, `1/model.yaml` of the leaf's model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Path
    """The GGUF file; a relative path starts at the folder of the YAML file."""
    slots: int = Field(default=16, gt=0)
    """Requests that decode together."""
    context_per_slot: int = Field(default=2048, gt=0)
    """Tokens of prompt and answer that one request may have."""
    batch_tokens: int = Field(default=256, gt=0)
    """Prompt tokens per engine step: the smaller, the sooner a prefill notices its cancellation."""
    threads: int = Field(default=0, ge=0)
    """0: every core that this process may use."""
    cache_ram_mib: int = Field(default=64, ge=0)
    """Host memory for prompts of slots that were taken over: the process grows by it, then stays (0: flat at once)."""
    tokens_per_block: int = Field(default=32, gt=0)
    """The block in which KV figures are counted, TensorRT-LLM's default; llama.cpp itself has no blocks."""
    max_waiting: int = Field(default=256, ge=0)
    """Requests that may wait for a slot; the next one is refused."""
    cancellation_check_period_ms: int = Field(default=50, gt=0)
    """How often waiting requests are asked whether their client is still there; running ones are asked every step."""


def load_engine_settings(path: Path) -> EngineSettings:
    """Read the knobs.

    Raises pydantic's ValidationError naming the field, MissingPart when the weights are not there.
    """
    from ruamel.yaml import YAML

    settings = EngineSettings.model_validate(YAML(typ="safe").load(path.read_text(encoding="utf-8")))
    gguf = path.parent / settings.model
    if not gguf.is_file():
        raise MissingPart(f"{gguf} is not there: run `zooserve fetch`, or name a GGUF file in {path}")
    return settings.model_copy(update={"model": gguf})


class Llama:
    """One loaded model with its slots. `complete` may be called from as many threads as there are slots, not more."""

    def __init__(self, settings: EngineSettings) -> None:
        _warn_about_spinning()
        import xllamacpp

        self._key = secrets.token_hex(16)
        self._server = xllamacpp.Server(_parameters(xllamacpp.CommonParams(), settings, self._key))
        self._bos = self._own_bos()

    def complete(self, prompt: str, fields: Mapping[str, Any], on_chunk: Callable[[dict[str, Any]], bool]) -> None:
        """Decode one prompt, blocking with the GIL released; `on_chunk` gets each chunk and returns True to cancel.

        `on_chunk` must not raise: the binding swallows what it raises and goes on decoding.
        """
        body = {"prompt": prompt.removeprefix(self._bos), **fields}
        streamed = {
            "stream": True,
            "return_progress": True,
            "timings_per_token": True,
            "cache_prompt": True,
            "lora": [],
        }
        self._server.handle_completions({**body, **streamed}, on_chunk)

    def cached_tokens(self) -> int:
        """Tokens of prefixes kept in slots that nobody decodes in; blocks for at most one engine step."""
        slots = self._ask("/slots")
        return sum(int(slot.get("n_prompt_tokens", 0)) for slot in slots if not slot["is_processing"])

    def close(self) -> None:
        """Free the model; no call may be running."""
        del self._server

    def _own_bos(self) -> str:
        """The text of the token that llama.cpp puts before every prompt by itself; empty if it puts none.

        A rendered chat template may begin with it too, and two of them change the answer.
        """
        added = self._ask("/tokenize", {"content": "", "add_special": True})["tokens"]
        return str(self._ask("/props")["bos_token"]) if added else ""

    def _ask(self, path: str, body: object = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 - our own loopback listener
            cast("str", self._server.listening_address) + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"},
        )
        with open_unproxied(request, timeout=30) as answer:
            return json.load(answer)


def _parameters(parameters: Any, settings: EngineSettings, key: str) -> Any:
    threads = settings.threads or len(os.sched_getaffinity(0))
    parameters.model.path = str(settings.model)
    parameters.n_parallel = settings.slots
    parameters.n_ctx = settings.slots * settings.context_per_slot  # split evenly over the slots
    parameters.n_batch = parameters.n_ubatch = settings.batch_tokens
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    parameters.cache_ram_mib = settings.cache_ram_mib
    parameters.endpoint_slots = True
    parameters.api_keys = [key]
    parameters.ui = False
    parameters.verbosity = 0
    return parameters


def _warn_about_spinning() -> None:
    if "GOMP_SPINCOUNT" not in os.environ and "OMP_WAIT_POLICY" not in os.environ:
        _log.warning(
            "GOMP_SPINCOUNT is not set: beside a busy process decoding may fall from 100 to 6 tokens/s. "
            "Start the server with GOMP_SPINCOUNT=100."
        )
