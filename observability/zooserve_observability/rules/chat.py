"""Chat and its leaves: room for KV, the spread over several leaves, and generations that nobody gets."""

from zooserve_observability import foreign, vocabulary
from zooserve_observability.rules.promql import among, per_second, selected, series
from zooserve_observability.rules.recording import filled, imbalance
from zooserve_observability.rules.rule import Alert, Condition, Recording

__all__ = ["ALERTS", "RECORDINGS"]

_MODEL = ("model",)

_leaf_loads = f"sum by (model, leaf) (avg_over_time({selected(vocabulary.LEAF_IN_FLIGHT)}[5m]))"
_leaf_imbalance = imbalance("zooserve:leaf_load:imbalance5m", _leaf_loads, _MODEL, "leaf")
_leaf_load = Recording("zooserve:leaf_load:mean5m", _leaf_loads, (*_MODEL, "leaf"))
_leaf_kv = filled(
    "zooserve:leaf_kv:ratio",
    selected(foreign.LEAF_KV_BLOCKS, (among("kv_cache_block_type", "used"),)),
    selected(foreign.LEAF_KV_BLOCKS, (among("kv_cache_block_type", "max"),)),
    ("model", "instance"),
)
_held = f"sum by (model) ({selected(vocabulary.CHAT_HELD_TOKENS)})"
_budget = f"sum by (model) ({selected(vocabulary.CHAT_BUDGET_TOKENS)})"
_chat_budget = Recording("zooserve:chat_budget:ratio", f"{_held}\n/\n({_budget} > 0)", _MODEL)
_chat_waiting = Recording("zooserve:chat_waiting:sum", f"sum by (model) ({selected(vocabulary.CHAT_WAITING)})", _MODEL)

# Answers are counted by the router when they end, and by the engine as it writes: a window of some answers' length.
_WINDOW = "15m"
_on_leaf = f"and on (model)\n{selected(vocabulary.MODEL_INFO, (among('runs_on', 'leaf'),))}"
_generated = f"sum ({per_second(foreign.LEAF_GENERATED, _WINDOW)})"
_written = f"sum ({per_second(vocabulary.TOKENS, _WINDOW, (among('direction', 'output'),))}\n{_on_leaf})"
# Tokens of answers that were left are among those written; those beyond a stop string are not.
_past_stop = f"sum ({per_second(vocabulary.WASTED_TOKENS, _WINDOW, (among('reason', 'stop'),))}\n{_on_leaf})"
_orphans = f"{_generated}\n-\n({_written}\nor\n{_generated} * 0)\n-\n({_past_stop}\nor\n{_generated} * 0)"
_orphaned = Recording(f"zooserve:orphaned_tokens:rate{_WINDOW}", _orphans, ())
_orphaned_ratio = Recording(f"zooserve:orphaned_tokens:ratio_rate{_WINDOW}", f"({_orphans})\n/\n({_generated} > 0)", ())

RECORDINGS = (_leaf_imbalance, _leaf_load, _leaf_kv, _chat_budget, _chat_waiting, _orphaned, _orphaned_ratio)

ALERTS = (
    Alert(
        "ZooserveLeavesUneven",
        (Condition(_leaf_imbalance.where(), ">", 1.5), Condition(_leaf_load.where(), ">", 2)),
        "10m",
        "ticket",
        "chat",
        "chat",
        '{{ $labels.leaf }} has {{ $value | printf "%.3g" }} times its share of the generations of {{ $labels.model }}',
        "Several leaves serve this model, and generations gather on one of them.",
    ),
    Alert(
        "ZooserveLeafKvNearFull",
        (Condition(_leaf_kv.where(), ">", 0.95),),
        "10m",
        "ticket",
        "chat",
        "chat",
        "{{ $value | humanizePercentage }} of the KV cache of {{ $labels.model }} on {{ $labels.instance }} is used",
        "New prompts wait in the engine, and prefixes that could be reused are evicted.",
    ),
    Alert(
        "ZooserveChatBudgetNearFull",
        (Condition(_chat_budget.where(), ">", 0.9), Condition(_chat_waiting.where(), ">", 0)),
        "5m",
        "ticket",
        "chat",
        "chat",
        "{{ $value | humanizePercentage }} of the token budget of {{ $labels.model }} is held, and chats wait",
        "The router admits chats by the tokens that they may come to need: the rest waits, then gets 429 or 504.",
    ),
    Alert(
        "ZooserveOrphanedGenerations",
        (Condition(_orphaned_ratio.where(), ">", 0.25), Condition(_orphaned.where(), ">", 2)),
        "15m",
        "ticket",
        "chat",
        "chat",
        "{{ $value | humanizePercentage }} of the tokens that the leaf generates are for nobody",
        "The engine writes more than the router gets or knows to be wasted: cancellations do not reach it, or "
        "somebody calls it directly.",
    ),
    Alert(
        "ZooserveVllmKvNearFull",
        (Condition(series(foreign.VLLM_KV_USAGE), ">", 0.95),),
        "10m",
        "ticket",
        "chat",
        "chat",
        "{{ $value | humanizePercentage }} of the KV cache of {{ $labels.model_name }} is used",
        "vLLM preempts generations and computes them again.",
        requires="vllm",
    ),
)
