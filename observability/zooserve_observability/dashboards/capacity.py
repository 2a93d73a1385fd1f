"""How much is left: memory, processors, sessions, budgets."""

from zooserve_observability import foreign, vocabulary
from zooserve_observability.dashboards.expressions import now, quantile, rate, ratio, selected
from zooserve_observability.dashboards.panels import Dashboard, Panel, Query, Row

__all__ = ["DASHBOARD"]

_ROUTER = ('application="zooserve"',)
# The others are called by the path of a Python.
_NAMED = ('Component!~"/.*"',)
_QDRANT = ('job="qdrant"',)
_TO_ROUTER = ('proxy="http-zooserve"',)
_WORKING = now(foreign.HAPROXY_WORKING, "instance", where=_TO_ROUTER)
_QUEUED = now(foreign.HAPROXY_QUEUE, "instance", where=_TO_ROUTER)
_MEMORY = now(foreign.NODE_MEMORY_TOTAL, "ip", how="max")
_MEMORY_USED = now(foreign.NODE_MEMORY_USED, "ip", how="max")
_FRONT = ('proxy="http_frontend"',)


def _by_process(family: foreign.ForeignMetric) -> str:
    """By what Ray calls a process, less the method that it runs at the moment."""
    called = selected(family, where=_NAMED)
    return f'sum by (process) (label_replace({called}, "process", "${{1}}", "Component", "([^.]+).*"))'


_GPUS = Row(
    "GPUs",
    (
        Panel(
            "GPU memory",
            "Used and there. Above 95% the next model or the next large batch may not fit.",
            "bytes",
            (
                Query(now(foreign.GPU_MEMORY_USED, "gpu_uuid", how="max"), "{{gpu_uuid}} used"),
                Query(now(foreign.GPU_MEMORY_TOTAL, "gpu_uuid", how="max"), "{{gpu_uuid}} total"),
            ),
            requires="gpu",
        ),
        Panel(
            "GPU memory, share used",
            "Flat and high is an engine's KV cache, taken once. Climbing is a leak.",
            "percentunit",
            (
                Query(
                    ratio(
                        now(foreign.GPU_MEMORY_USED, "gpu_uuid", how="max"),
                        now(foreign.GPU_MEMORY_TOTAL, "gpu_uuid", how="max"),
                    ),
                    "{{gpu_uuid}}",
                ),
            ),
            requires="gpu",
            most=1,
            worry_at=0.95,
        ),
        Panel(
            "GPU utilisation",
            "The share of time in which the GPU ran anything at all. Low while requests wait: the batches are too "
            "small.",
            "percentunit",
            (Query(now(foreign.GPU_UTILISATION, "gpu_uuid", how="max"), "{{gpu_uuid}}"),),
            requires="gpu",
            most=1,
        ),
    ),
)

_NODES = Row(
    "Nodes and processes",
    (
        Panel(
            "Processors",
            "How busy each node is. At 1 for long: everything on it waits for its turn.",
            "percentunit",
            (Query(f"{now(foreign.NODE_CPU, 'ip', how='max')} / 100", "{{ip}}"),),
            most=1,
            worry_at=0.95,
        ),
        Panel(
            "Memory of the node",
            "Used and free, everything on the node counted. With nothing free the kernel ends processes.",
            "bytes",
            (
                Query(_MEMORY_USED, "{{ip}} used"),
                Query(
                    f"{_MEMORY} - {_MEMORY_USED}",
                    "{{ip}} free",
                ),
            ),
            look="stacked",
        ),
        Panel(
            "Memory of the router's processes",
            "Resident memory by Ray's name of the process. Climbing over days without more work is a leak.",
            "bytes",
            (Query(_by_process(foreign.RAY_COMPONENT_MEMORY), "{{process}}"),),
            look="stacked",
        ),
        Panel(
            "Processors taken by the router's processes",
            "In cores. A replica near 1 is at its end: Python runs one thread at a time; add a replica.",
            "short",
            (Query(f"{_by_process(foreign.RAY_COMPONENT_CPU)} / 100", "{{process}}"),),
        ),
        Panel(
            "In flight, for each replica of the router",
            "Requests in flight for each healthy replica, and for each that there should be. The lines apart: "
            "replicas are missing; see the router's log.",
            "short",
            (
                Query(f"{now(vocabulary.IN_FLIGHT)} / {now(foreign.RAY_REPLICAS, where=_ROUTER)}", "healthy"),
                Query(
                    f"{now(vocabulary.IN_FLIGHT)} / {now(foreign.RAY_TARGET_REPLICAS, where=_ROUTER, how='max')}",
                    "wanted",
                ),
            ),
        ),
        Panel(
            "Trace log, of its bound",
            "What the trace log takes in memory and on the disk, of what the settings allow. Memory near 1 and the "
            "disk near 0.9 are as it should be: the oldest go. The disk above 0.97: they go too slowly.",
            "percentunit",
            (
                Query(
                    ratio(now(vocabulary.TRACE_LOG_BYTES, "place"), now(vocabulary.TRACE_LOG_MAX_BYTES, "place")),
                    "{{place}}",
                ),
            ),
            most=1,
        ),
    ),
)

_EDGE = Row(
    "Sessions, queues, budgets",
    (
        Panel(
            "HAProxy: sessions, of its limit",
            "Connections to the front door. Near 1 new ones wait in the kernel, unseen by anything else here.",
            "percentunit",
            (
                Query(
                    ratio(
                        now(foreign.HAPROXY_SESSIONS, "instance", where=_FRONT),
                        now(foreign.HAPROXY_LIMIT, "instance", where=_FRONT),
                    ),
                    "{{instance}}",
                ),
            ),
            most=1,
            worry_at=0.8,
        ),
        Panel(
            "HAProxy: requests for each replica",
            "What is being answered or waits for a replica, for each replica that can be reached. Much more than the "
            "router has in flight: they wait here.",
            "short",
            (
                Query(
                    ratio(
                        f"{_WORKING} + {_QUEUED}",
                        now(foreign.HAPROXY_SERVERS, "instance", where=_TO_ROUTER),
                    ),
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Triton: pending",
            "Requests taken and not begun, over all stages of a server. Only climbing: the zoo falls behind.",
            "short",
            (Query(now(foreign.PENDING, "instance"), "{{instance}}"),),
        ),
        Panel(
            "Chat budget in use",
            "Tokens held, of the budget. At 1 chats wait; at 1 while the leaf's KV is half empty, the budget is too "
            "small.",
            "percentunit",
            (
                Query(
                    ratio(now(vocabulary.CHAT_HELD_TOKENS, "model"), now(vocabulary.CHAT_BUDGET_TOKENS, "model")),
                    "{{model}}",
                ),
            ),
            most=1,
            worry_at=0.9,
        ),
        Panel(
            "Requests in flight",
            "What the router works on, by node. Only climbing: work comes faster than it goes.",
            "short",
            (Query(now(vocabulary.IN_FLIGHT, "instance"), "{{instance}}"),),
        ),
        Panel(
            "Refused for want of room",
            "What overload costs callers, by what ran out. Above 0 for long: more of that.",
            "reqps",
            (Query(rate(vocabulary.ADMISSION_REFUSED, "reason"), "{{reason}}"),),
        ),
    ),
)

_VECTORS = Row(
    "Qdrant",
    (
        Panel(
            "Answers",
            "What Qdrant answered, by status. 5xx: its log; 4xx: whoever asks does so wrongly.",
            "reqps",
            (Query(rate(foreign.QDRANT_RESPONSES, "method", "status", where=_QDRANT), "{{method}} {{status}}"),),
            requires="qdrant",
        ),
        Panel(
            "Time of an answer, p95",
            "By what was asked. Searches that get slower as the collection grows: its index does not fit into memory.",
            "s",
            (Query(quantile(0.95, foreign.QDRANT_DURATION, "endpoint", where=_QDRANT), "{{endpoint}}"),),
            requires="qdrant",
        ),
        Panel(
            "Resident memory",
            "Vectors and indexes. Near the node's own: quantise, or keep vectors on the disk.",
            "bytes",
            (Query(now(foreign.QDRANT_MEMORY, "instance", where=_QDRANT), "{{instance}}"),),
            requires="qdrant",
        ),
    ),
)

DASHBOARD = Dashboard(
    "capacity",
    "zooserve: capacity",
    "Memory, processors, sessions, queues and budgets: how much is left, and what runs out first.",
    (_GPUS, _NODES, _EDGE, _VECTORS),
)
