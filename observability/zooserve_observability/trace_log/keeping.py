"""The thread behind the log: lets traces settle, decides what becomes of each, writes it, and hands on what is kept.

Whoever brings spans never waits for it. What came of a trace that had settled is late: it is written, and handed on, as
the trace was decided, unless it brings another root: a caller's trace may have many requests, each decided by its own.
A request that goes on for long settles before its root comes: then it is decided again, and handed on whole.
"""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from zooserve_observability.once_a_minute import OnceAMinute
from zooserve_observability.trace_log.decision import KEPT, Decision, Policy, decided
from zooserve_observability.trace_log.portions import Portion
from zooserve_observability.trace_log.settling import Settling, Waiting
from zooserve_observability.trace_log.store import Settled, StoreFailed, TraceStore
from zooserve_observability.trace_log.unclaimed import Unclaimed
from zooserve_observability.trace_metrics import TraceMetrics

__all__ = ["TraceKeeping"]

_EVERY_S = 0.25
_MOST_BYTES = 8 * 2**20
"""Of portions that wait for the thread: it comes by four times a second, unless the disk hangs."""
_REMEMBERED = 20_000
_STOP_S = 5.0
_log = logging.getLogger("zooserve.traces")


class TraceKeeping:
    """One store's writer."""

    def __init__(
        self,
        store: TraceStore,
        policy: Policy,
        metrics: TraceMetrics,
        hand_on: Callable[[Settled], None] = lambda trace: None,
        settling: Settling | None = None,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._store = store
        self._policy = policy
        self._metrics = metrics
        metrics.expects("log")
        metrics.expects_decisions()
        self._hand_on = hand_on
        self._settling = settling or Settling()
        self._unclaimed = Unclaimed()
        self.memory_bytes: Callable[[], int] = lambda: 0
        """What the part in memory takes, for the metric."""
        self._most_bytes = most_bytes
        self._incoming: deque[Portion] = deque()
        self._incoming_bytes = 0
        self._lock = threading.Lock()
        self._decisions: OrderedDict[str, Decision] = OrderedDict()
        self._warn_of_disk = OnceAMinute(_log)
        self._warn_of_queue = OnceAMinute(_log)
        self._warn_of_fault = OnceAMinute(_log)
        self._ended = threading.Event()

    def put(self, portions: Iterable[Portion]) -> None:
        """Take these, or count them as dropped where too much waits."""
        for portion in portions:
            with self._lock:
                taken = self._incoming_bytes + len(portion.body) <= self._most_bytes
                if taken:
                    self._incoming.append(portion)
                    self._incoming_bytes += len(portion.body)
            if not taken:
                self._metrics.dropped("log", "queue_full", portion.spans)
                self._warn_of_queue("the trace log's disk is too slow: spans are kept in memory alone")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep for the block; at its end everything settles."""
        thread = threading.Thread(target=self._keep_for_ever, name="trace-log", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(_STOP_S)

    def settle(self, now: float) -> None:
        """One round: what has come waits, what has ended is decided and written."""
        for portion in self._taken():
            self._settling.put(portion, now, is_late=portion.trace_id in self._decisions)
        self._keep(self._settling.settled(now))

    def _keep_for_ever(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self._outlived(lambda: self.settle(time.monotonic()))
        self._outlived(lambda: self.settle(time.monotonic()))
        self._outlived(lambda: self._keep(self._settling.all()))
        self._store.close()

    def _outlived(self, work: Callable[[], None]) -> None:
        """What goes wrong with some traces is no reason to keep no more."""
        try:
            work()
        except Exception as exc:
            self._warn_of_fault("the trace log lost what it was to write: %r", exc)

    def _taken(self) -> list[Portion]:
        with self._lock:
            taken = list(self._incoming)
            self._incoming.clear()
            self._incoming_bytes = 0
        return taken

    def _keep(self, ended: Iterable[Waiting]) -> None:
        batch: list[Settled] = []
        size = 0
        for waiting in ended:
            trace = self._decided(waiting)
            self._claim(trace, is_whole=waiting.root_at is not None)
            if batch and size + trace.size_bytes > self._store.batch_bytes:
                self._write(batch)
                batch, size = [], 0
            batch.append(trace)
            size += trace.size_bytes
        if batch:
            self._write(batch)
        waiting_bytes = self._settling.size_bytes + self._unclaimed.size_bytes
        self._metrics.log_takes(self.memory_bytes() + waiting_bytes, self._store.size_bytes)

    def _claim(self, trace: Settled, *, is_whole: bool) -> None:
        """Hand on what is worth it, with what came of it before; the rest is kept while its root may come."""
        if trace.decision not in KEPT and not is_whole:
            self._unclaimed.keep(trace.trace_id, trace.portions)
            return
        before = self._unclaimed.taken(trace.trace_id)
        if trace.decision in KEPT:
            self._hand_on(Settled(trace.trace_id, trace.decision, (*before, *trace.portions)))

    def _decided(self, trace: Waiting) -> Settled:
        decision = self._decisions.get(trace.trace_id)
        if decision is None or trace.root_at is not None:
            decision = decided(trace.portions, trace.trace_id, self._policy)
            if trace.root_at is not None or decision in ("error", "slow"):  # else its root may still be to come
                self._metrics.decided(decision)
        self._decisions[trace.trace_id] = decision
        while len(self._decisions) > _REMEMBERED:
            self._decisions.popitem(last=False)
        return Settled(trace.trace_id, decision, tuple(trace.portions))

    def _write(self, batch: list[Settled]) -> None:
        spans = sum(trace.spans for trace in batch)
        try:
            self._store.write(batch)
        except StoreFailed as exc:
            self._metrics.dropped("log", "disk", spans)
            self._warn_of_disk(
                "traces cannot be written to %s, and are kept in memory alone: %s", self._store.path, exc
            )
        else:
            self._metrics.exported("log", spans)
