"""The embedded leaf: NVIDIA's llmapi tensor contract over llama.cpp, as a decoupled Triton Python model.

A request passes: execute -> zooserve.leaf.call (what it asks) -> zooserve.leaf.engine (its thread answers) -> Reply.
"""

import faulthandler
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from zooserve.leaf.call import Call, answer, is_stop, read_call
from zooserve.leaf.contract import CANCELLED, ERROR_PREFIX, INPUTS, NOT_AVAILABLE, STOP_NEEDS_ID
from zooserve.leaf.engine import Engine
from zooserve.leaf.job import Cancelled, Failed, Job
from zooserve.leaf.llama import Llama, load_engine_settings
from zooserve.leaf.metrics import FAMILIES, Family, samples

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_SAMPLE_PERIOD_S = 0.25
_SERVER_CHECK_PERIOD_S = 0.5
_FROZEN_AFTER_S = 10

_log = logging.getLogger("leaf")


class TritonPythonModel:
    """What Triton's stub process runs."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the weights, start the engine and the one thread that touches metrics."""
        logging.basicConfig(level=logging.INFO, format="leaf %(levelname)s %(name)s: %(message)s")
        settings = load_engine_settings(Path(args["model_repository"]) / args["model_version"] / "model.yaml")
        self._tokens_per_block = settings.tokens_per_block
        llama = Llama(settings)
        self._engine = Engine(settings, llama)
        self._running = RunningIds(self._engine)
        self._sampler = MetricSampler(self._engine, llama, settings.tokens_per_block, args)
        threading.Thread(target=_end_with_server, args=(os.getppid(),), name="server-watch", daemon=True).start()

    def execute(self, requests: list[Any]) -> None:
        """Hand each request to the engine; answers go through the requests' senders."""
        for request in requests:
            try:
                self._accept(request)
            except Exception as exc:  # one request's fault must not reach the others of this call
                _log.info("refused: %s", exc)
                _send_error(request.get_response_sender(), f"{ERROR_PREFIX}{exc}")

    def finalize(self) -> None:
        """End what runs, quickly, and free the model."""
        self._sampler.close()
        if not self._engine.close():
            _log.error("a request did not end within 10 s; leaving it to the end of this process")

    def _accept(self, request: Any) -> None:
        tensors = _tensors_of(request)
        request_id = request.request_id()
        if is_stop(tensors):
            self._stop(request_id, request.get_response_sender())
            return
        call = read_call(tensors)
        reply = Reply(call, request.get_response_sender(), self._tokens_per_block, self._running, request_id)
        self._running.add(request_id, self._engine.submit(call.prompt, call.sampling, reply))

    def _stop(self, request_id: str, sender: Any) -> None:
        if not request_id:
            _send_error(sender, STOP_NEEDS_ID)
            return
        self._running.stop(request_id)
        _send_error(sender, CANCELLED, pb_utils.TritonError.CANCELLED)


class RunningIds:
    """Which job runs under which request id, for `stop`. A reused id hides the earlier job, as NVIDIA's model does."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def add(self, request_id: str, job: Job) -> None:
        """Remember a job, unless it has ended meanwhile or has no id."""
        with self._lock:
            if request_id and job.outcome is None:
                self._jobs[request_id] = job

    def remove(self, request_id: str, job: Job) -> None:
        """Forget a job that has ended."""
        with self._lock:
            if self._jobs.get(request_id) is job:
                del self._jobs[request_id]

    def stop(self, request_id: str) -> None:
        """Cancel the job of this id, if there is one."""
        with self._lock:
            job = self._jobs.get(request_id)
        if job is not None:
            self._engine.cancel(job)


class Reply:
    """Sends a job's progress and end to the client."""

    def __init__(self, call: Call, sender: Any, tokens_per_block: int, running: RunningIds, request_id: str) -> None:
        self._call = call
        self._sender = sender
        self._tokens_per_block = tokens_per_block
        self._running = running
        self._request_id = request_id

    def progressed(self, job: Job) -> None:
        """Send the text so far, to who streams."""
        if self._call.streaming:
            self._sender.send(self._response(job))

    def ended(self, job: Job) -> None:
        """Send the last response: the answer, or the error."""
        self._running.remove(self._request_id, job)
        match job.outcome:
            case Cancelled():
                _send_error(self._sender, CANCELLED, pb_utils.TritonError.CANCELLED)
            case Failed(message):
                _send_error(self._sender, f"{ERROR_PREFIX}{message}")
            case _:
                self._sender.send(self._response(job), flags=_FINAL)

    def left(self) -> bool:
        """Whether Triton knows that the client is gone."""
        return bool(self._sender.is_cancelled())

    def _response(self, job: Job) -> Any:
        outputs = answer(self._call, job, self._tokens_per_block)
        return pb_utils.InferenceResponse(output_tensors=[_text_tensor(*output) for output in outputs.items()])


class MetricSampler:
    """Copies the engine's usage into Triton's metrics.

    One thread does it all: updates from several at once killed the server (SIGSEGV in libtriton_python, 2.51).
    """

    def __init__(self, engine: Engine, llama: Llama, tokens_per_block: int, args: Mapping[str, str]) -> None:
        self._engine = engine
        self._llama = llama
        self._tokens_per_block = tokens_per_block
        self._labels = {"model": args["model_name"], "version": args["model_version"]}
        self._closing = threading.Event()
        # Must outlive their series: a family that is collected first leaves series that refuse every update.
        self._families = {name: _made(name, family) for name, family in FAMILIES.items()}
        self._thread = threading.Thread(target=self._sample, name="metrics")
        self._thread.start()

    def close(self) -> None:
        """Stop sampling; the series go away with the thread."""
        self._closing.set()
        self._thread.join()

    def _sample(self) -> None:
        series = self._series()
        known: dict[tuple[str, str], float] = {}
        while not self._closing.is_set():
            try:
                for key, value in self._values().items():
                    if known.get(key) != value:
                        _write(series[key], FAMILIES[key[0]], known.get(key, 0.0), value)
                        known[key] = value
            except Exception:  # a missed sample is not worth the thread
                _log.exception("metrics could not be sampled")
            self._closing.wait(_SAMPLE_PERIOD_S)

    def _values(self) -> dict[tuple[str, str], float]:
        cached = self._llama.cached_tokens()  # may wait for an engine step, so before what must be fresh
        return samples(self._engine.usage(), cached, self._tokens_per_block)

    def _series(self) -> dict[tuple[str, str], Any]:
        return {
            (name, value): self._families[name].Metric(labels={**self._labels, **family.labels(value)})
            for name, family in FAMILIES.items()
            for value in family.values
        }


def _made(name: str, family: Family) -> Any:
    kind = pb_utils.MetricFamily.COUNTER if family.kind == "counter" else pb_utils.MetricFamily.GAUGE
    return pb_utils.MetricFamily(name=name, description=family.description, kind=kind)


def _write(metric: Any, family: Family, before: float, now: float) -> None:
    """A counter takes increments only."""
    if family.kind == "counter":
        metric.increment(now - before)
    else:
        metric.set(now)


def _end_with_server(server_pid: int) -> None:
    """End this process once its server is gone: a stub of a killed server goes on decoding for nobody, for ever.

    An update of a metric waits for the server with the GIL held, for a dead one for ever: then this loop does not run
    either (seen at 3 of 4 kills). faulthandler's timer needs no GIL; it ends a process that has not run Python for so
    long, and shows where it stood.
    """
    pause = threading.Event()
    while os.getppid() == server_pid:
        faulthandler.dump_traceback_later(_FROZEN_AFTER_S, exit=True)
        pause.wait(_SERVER_CHECK_PERIOD_S)
    os._exit(1)


def _tensors_of(request: Any) -> dict[str, Any]:
    found = {name: pb_utils.get_input_tensor_by_name(request, name) for name in INPUTS}
    return {name: tensor.as_numpy() for name, tensor in found.items() if tensor is not None}


def _text_tensor(name: str, text: str) -> Any:
    return pb_utils.Tensor(name, np.array([text.encode()], dtype=np.object_))


def _send_error(sender: Any, message: str, *code: int) -> None:
    error = pb_utils.TritonError(message, *code)
    sender.send(pb_utils.InferenceResponse([_text_tensor("text_output", NOT_AVAILABLE)], error), flags=_FINAL)
