"""The leaf's engine: jobs join the running batch, wait in a bounded queue when every slot is taken, and can be left.

One thread per slot blocks in llama.cpp, so that never more requests are inside it than it has slots: a request queued
inside it stays there after its client has left (measured: still after 12 s), one queued here leaves at once.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from zooserve.errors import BackendUnavailable, BadInput, Overloaded
from zooserve.leaf.job import Cancelled, Failed, Finished, Job, Listener
from zooserve.leaf.llama import EngineSettings
from zooserve.leaf.sampling import Sampling
from zooserve.leaf.stops import StopScanner

__all__ = ["Completer", "Engine", "Usage"]

_log = logging.getLogger(__name__)


class Completer(Protocol):
    """What the engine needs of llama.cpp."""

    def complete(self, prompt: str, fields: Mapping[str, Any], on_chunk: Callable[[dict[str, Any]], bool]) -> None:
        """Decode, blocking; `on_chunk` returns True to cancel."""

    def cached_tokens(self) -> int:
        """Tokens of prefixes kept for later."""

    def close(self) -> None:
        """Free the model."""


@dataclass(frozen=True)
class Usage:
    """What the engine holds at one moment."""

    slots: int
    active: int
    """Jobs in a slot."""
    in_prefill: int
    """Those of them that have no token yet."""
    waiting: int
    kv_tokens: int
    """KV that all slots have room for."""
    live_tokens: int
    """KV of jobs in a slot."""
    live_blocks: int
    reused_blocks: int
    """Blocks of prompts that were found in the cache, ever."""
    generated_tokens: int
    """Tokens written for any request, ever, whatever became of it."""


class Engine:
    """Runs jobs on the slots of one model. Its threads start here and end in `close`."""

    def __init__(self, settings: EngineSettings, llama: Completer) -> None:
        self._settings = settings
        self._llama = llama
        self._queue: deque[Job] = deque()
        self._running: set[Job] = set()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._reused_blocks = 0
        self._generated_tokens = 0
        """Of jobs that have left their slot."""
        workers = [threading.Thread(target=self._serve_slot, name=f"slot-{n}") for n in range(settings.slots)]
        self._threads = [*workers, threading.Thread(target=self._watch_queue, name="queue-watch")]
        for thread in self._threads:
            thread.start()

    def submit(self, prompt: str, sampling: Sampling, listener: Listener) -> Job:
        """Take a request; its answer comes to `listener`.

        Raises BadInput for an empty prompt, Overloaded when too many wait, BackendUnavailable while closing.
        """
        if not prompt:
            raise BadInput("text_input is empty: send a prompt", param="text_input")
        job = Job(prompt, sampling, listener, arrival_ns=time.monotonic_ns())
        with self._changed:
            if self._closing.is_set():
                raise BackendUnavailable("the leaf is shutting down")
            if len(self._queue) >= self._settings.max_waiting + self._free_slots():
                raise Overloaded(f"{self._waiting()} requests already wait for one of {self._settings.slots} slots")
            self._queue.append(job)
            self._changed.notify()
        return job

    def cancel(self, job: Job) -> None:
        """End a job: at once while it waits, at its next engine step while it runs; no matter if it has ended."""
        job.cancelled.set()
        with self._changed:
            if job not in self._queue:
                return
            self._queue.remove(job)
        self._end(job)

    def usage(self) -> Usage:
        """What is held right now."""
        size = self._settings.tokens_per_block
        with self._changed:
            running = list(self._running)
            waiting = self._waiting()
            generated = self._generated_tokens + sum(job.generated_tokens for job in running)
        return Usage(
            slots=self._settings.slots,
            active=len(running),
            in_prefill=sum(job.in_prefill for job in running),
            waiting=waiting,
            kv_tokens=self._settings.slots * self._settings.context_per_slot,
            live_tokens=sum(job.live_tokens for job in running),
            live_blocks=sum(-(-job.live_tokens // size) for job in running),
            reused_blocks=self._reused_blocks,
            generated_tokens=generated,
        )

    def close(self, timeout_s: float = 10.0) -> bool:
        """End every job, then free the model. False if a thread did not end in time; the model is then left alone."""
        self._closing.set()
        with self._changed:
            leaving = [*self._queue, *self._running]
            self._changed.notify_all()
        for job in leaving:
            self.cancel(job)
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            return False
        self._llama.close()
        return True

    def _free_slots(self) -> int:
        return self._settings.slots - len(self._running)

    def _waiting(self) -> int:
        return max(0, len(self._queue) - self._free_slots())

    def _serve_slot(self) -> None:
        while self._serve_next():
            pass  # while it waits for the next, no name here holds on to a job that has ended, and to its request

    def _serve_next(self) -> bool:
        """Run one job to its end. False once there will be none."""
        job = self._next()
        if job is None:
            return False
        self._run(job)
        with self._changed:
            self._running.discard(job)
            self._reused_blocks += job.cached_tokens // self._settings.tokens_per_block
            self._generated_tokens += job.generated_tokens
        self._end(job)
        return True

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing.is_set())
            if not self._queue:
                return None
            job = self._queue.popleft()
            self._running.add(job)
            return job

    def _run(self, job: Job) -> None:
        if job.cancelled.is_set():
            return
        scanner = StopScanner(job.sampling.stop)

        def on_chunk(chunk: dict[str, Any]) -> bool:
            try:
                _take(job, scanner, chunk)
                return job.outcome is not None or self._is_left(job)
            except Exception as exc:  # the binding would swallow it and go on decoding
                _log.exception("a chunk could not be passed on")
                job.outcome = Failed(str(exc))
                return True

        try:
            self._llama.complete(job.prompt, job.sampling.to_llama(self._settings.context_per_slot), on_chunk)
        except Exception as exc:  # whatever C++ raises belongs to this request alone
            _log.exception("llama.cpp refused a request")
            job.outcome = Failed(str(exc))

    def _is_left(self, job: Job) -> bool:
        if not job.cancelled.is_set() and job.listener.left():
            job.cancelled.set()
        return job.cancelled.is_set()

    def _end(self, job: Job) -> None:
        if job.outcome is None:
            job.outcome = self._outcome_without_answer(job)
        try:
            job.listener.ended(job)
        except Exception:  # a listener's fault must not take the slot's thread with it
            _log.exception("the end of a request could not be reported")

    def _outcome_without_answer(self, job: Job) -> Cancelled | Failed:
        if self._closing.is_set():
            return Failed("the leaf is shutting down")
        return Cancelled() if job.cancelled.is_set() else Failed("llama.cpp ended without an answer")

    def _watch_queue(self) -> None:
        period_s = self._settings.cancellation_check_period_ms / 1000
        while not self._closing.wait(period_s):
            self._cancel_the_left()

    def _cancel_the_left(self) -> None:
        with self._changed:
            waiting = list(self._queue)
        for job in waiting:
            if job.listener.left():
                self.cancel(job)


def _take(job: Job, scanner: StopScanner, chunk: dict[str, Any]) -> None:
    """Write one chunk of llama.cpp's stream into the job, and tell its listener of new text."""
    if "error" in chunk:
        job.outcome = Failed(str(chunk["error"].get("message", "llama.cpp gave no reason")))
    elif "prompt_progress" in chunk:
        _take_progress(job, chunk["prompt_progress"])
    else:
        _take_token(job, scanner, chunk)


def _take_progress(job: Job, progress: dict[str, int]) -> None:
    job.first_scheduled_ns = job.first_scheduled_ns or time.monotonic_ns()
    job.prompt_tokens = progress["total"]
    job.cached_tokens = progress["cache"]
    job.processed_tokens = progress["processed"]


def _take_token(job: Job, scanner: StopScanner, chunk: dict[str, Any]) -> None:
    choice = chunk["choices"][0]
    _count(job, choice, int(chunk.get("timings", {}).get("predicted_n", job.generated_tokens)))
    reason = choice["finish_reason"]
    fresh = scanner.feed(choice["text"])
    if scanner.matched is not None:
        job.outcome = Finished("stop", scanner.matched)
    elif reason is not None:
        fresh += scanner.flush()
        job.outcome = Finished("length" if reason == "length" else "stop")
    job.text += fresh
    if fresh and job.outcome is None:
        job.listener.progressed(job)


def _count(job: Job, choice: dict[str, Any], generated_tokens: int) -> None:
    if generated_tokens > job.generated_tokens:
        job.last_token_ns = time.monotonic_ns()
        job.first_token_ns = job.first_token_ns or job.last_token_ns
        job.first_scheduled_ns = job.first_scheduled_ns or job.first_token_ns
        job.generated_tokens = generated_tokens
    if choice["logprobs"]:
        job.cumulative_logprob += sum(token["logprob"] for token in choice["logprobs"]["content"])
