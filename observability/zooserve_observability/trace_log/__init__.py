"""The log of traces: receiver -> portions -> memory; and by a thread: settling -> decision -> store and forwarding.

`memory` answers who asks about a request that has just failed. `keeping` is the thread that writes what is settled to
the disk, where `reading` finds it, and hands what is worth keeping to `forwarding`.
"""

from zooserve_observability.trace_log.memory import TraceLog

__all__ = ["TraceLog"]
