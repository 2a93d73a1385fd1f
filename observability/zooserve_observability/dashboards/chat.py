"""Chats: how soon and how fast tokens come, what holds them up, and tokens that nobody gets."""

from zooserve_observability import foreign, vocabulary
from zooserve_observability.dashboards.expressions import (
    increase,
    mean,
    now,
    per_second,
    quantile,
    rate,
    ratio,
    selected,
    share,
)
from zooserve_observability.dashboards.panels import Dashboard, Panel, Query, Row
from zooserve_observability.rules.slo import FIRST_TOKEN, TOKEN_PACE, Promise

__all__ = ["DASHBOARD"]

_RUN = ("model", "version")
_NAMED = "{{model}} v{{version}}"
_OUTPUT = ('direction="output"',)
_LEAF = selected(vocabulary.MODEL_INFO, where=('runs_on="leaf"',))
_OF_LEAF = f"* on (model, version) group_left () max by (model, version) ({_LEAF})"
_SEEN = f"sum({per_second(vocabulary.TOKENS, where=_OUTPUT)} {_OF_LEAF})"
_STOP, _NO_STOP = ('reason="stop"',), ('reason!="stop"',)
# What was written past a stop string is not among the tokens that were seen; that of answers that were left is.
_PAST_STOP = f"sum({per_second(vocabulary.WASTED_TOKENS, where=_STOP)} {_OF_LEAF})"
_LEFT = f"sum({per_second(vocabulary.WASTED_TOKENS, where=_NO_STOP)} {_OF_LEAF})"


def _promised(promise: Promise) -> str:
    return f"{promise.limit_s:g} s for {100 * promise.share:g} of 100"


def _first_token(which: float) -> Query:
    return Query(quantile(which, vocabulary.FIRST_TOKEN, *_RUN), f"p{which * 100:.0f} {_NAMED}")


def _token_pace(which: float) -> Query:
    return Query(quantile(which, vocabulary.OUTPUT_TOKEN, *_RUN), f"p{which * 100:.0f} {_NAMED}")


_PACE = Row(
    "How soon, how fast",
    (
        Panel(
            "Time to first token",
            f"From the request's first byte to its first token. The objective is {_promised(FIRST_TOKEN)}: above it, "
            "see whether the queue or the prefill takes it, below.",
            "s",
            (_first_token(0.5), _first_token(0.95), _first_token(0.99)),
            traces="slow",
            worry_at=FIRST_TOKEN.limit_s,
        ),
        Panel(
            "Time per output token",
            f"The pace after the first token, as the router sees it. The objective is {_promised(TOKEN_PACE)}, about "
            "twice as fast as people read.",
            "s",
            (_token_pace(0.5), _token_pace(0.95), _token_pace(0.99)),
            traces="slow",
            worry_at=TOKEN_PACE.limit_s,
        ),
        Panel(
            "Tokens in and out",
            "Prompt tokens read and answer tokens written. Output flat while requests wait: the engine is at its "
            "limit.",
            "cps",
            (Query(rate(vocabulary.TOKENS, "model", "direction"), "{{model}} {{direction}}"),),
        ),
        Panel(
            "Where an answer's time goes",
            "The mean time in the engine's queue, in prefill and in decode. A growing queue is overload, a growing "
            "prefill is longer prompts or lost prefixes.",
            "s",
            (Query(mean(vocabulary.ENGINE_PHASE, "model", "phase"), "{{model}} {{phase}}"),),
            look="stacked",
        ),
        Panel(
            "Phases, p90",
            "Within this time nine of ten answers were through that phase.",
            "s",
            (Query(quantile(0.9, vocabulary.ENGINE_PHASE, "model", "phase"), "{{model}} {{phase}}"),),
            traces="slow",
        ),
        Panel(
            "Delivery delay, p90",
            "What the router saw beyond the engine's own time: the ways there and back. Above some 50 ms the router, "
            "not the engine, is what is busy.",
            "s",
            (Query(quantile(0.9, vocabulary.DELIVERY_DELAY, *_RUN), _NAMED),),
        ),
    ),
)

_ROOM = Row(
    "Room",
    (
        Panel(
            "Token budget: held and free",
            "Prompts and everything granted, and what is left of what may be in flight. Nothing free: the next chat "
            "waits, see beside.",
            "short",
            (
                Query(now(vocabulary.CHAT_HELD_TOKENS, "model"), "{{model}} held"),
                Query(
                    f"{now(vocabulary.CHAT_BUDGET_TOKENS, 'model')} - {now(vocabulary.CHAT_HELD_TOKENS, 'model')}",
                    "{{model}} free",
                ),
            ),
            look="stacked",
        ),
        Panel(
            "Waiting for room",
            "Chats that wait in the router. Some now and then is a burst; always some is too little capacity.",
            "short",
            (Query(now(vocabulary.CHAT_WAITING, "model"), "{{model}}"),),
        ),
        Panel(
            "Refused",
            "Chats that there was no room for, by what ran out. A deadline that passes while waiting is room, too.",
            "reqps",
            (Query(rate(vocabulary.ADMISSION_REFUSED, "model", "reason"), "{{model}}: {{reason}}"),),
        ),
        Panel(
            "KV blocks used",
            "The leaf's own KV cache. Above 95% for long, prompts wait in the engine and reusable prefixes are lost.",
            "percentunit",
            (
                Query(
                    ratio(
                        now(foreign.LEAF_KV_BLOCKS, "instance", where=('kv_cache_block_type="used"',)),
                        now(foreign.LEAF_KV_BLOCKS, "instance", where=('kv_cache_block_type="max"',)),
                    ),
                    "{{instance}}",
                ),
            ),
            most=1,
            worry_at=0.95,
        ),
        Panel(
            "Requests in the engine",
            "What the leaf decodes (active), reads (context) and lets wait, beside the most that it decodes together. "
            "Waiting for long while the router's budget has room: the budget is too large for the engine.",
            "short",
            (Query(now(foreign.LEAF_REQUESTS, "instance", "request_type"), "{{request_type}} at {{instance}}"),),
        ),
        Panel(
            "KV tokens: live and cached",
            "What answers in flight hold, and what idle slots keep of earlier prompts. Cached gives way to live.",
            "short",
            (Query(now(foreign.LEAF_KV_TOKENS, "kv_state", where=('kv_state!="max"',)), "{{kv_state}}"),),
        ),
    ),
)

_ENDS = Row(
    "How chats end, and tokens for nobody",
    (
        Panel(
            "Choices, by their end",
            "Finished, cancelled (the caller left, or the deadline passed) and failed. Cancelled rising with the time "
            "to first token: people give up.",
            "cps",
            (Query(rate(vocabulary.CHOICES_ENDED, "model", "outcome"), "{{model}}: {{outcome}}"),),
            look="stacked",
        ),
        Panel(
            "Not yet ended",
            "Choices issued less choices ended: those in flight. It has to come back to 0 at rest; what does not is "
            "lost.",
            "short",
            (
                Query(
                    f"{now(vocabulary.CHOICES_ISSUED, 'model')} - {now(vocabulary.CHOICES_ENDED, 'model')}", "{{model}}"
                ),
            ),
        ),
        Panel(
            "Wasted tokens, by reason",
            "Tokens generated for nobody. hang_up is callers who left, deadline is too little time granted, stop is "
            "what the engine wrote past a stop string.",
            "cps",
            (Query(rate(vocabulary.WASTED_TOKENS, "model", "reason"), "{{model}}: {{reason}}"),),
        ),
        Panel(
            "What became of the leaf's tokens",
            "Tokens that somebody got, that were wasted, and that no answer accounts for (orphaned). An answer's "
            "tokens count when it ends, so that a burst looks orphaned at first; above a few percent for long, "
            "cancellation does not reach the engine.",
            "cps",
            (
                Query(f"{_SEEN} - {_LEFT}", "delivered"),
                Query(f"{_LEFT} + {_PAST_STOP}", "wasted"),
                Query(f"clamp_min({rate(foreign.LEAF_GENERATED)} - {_SEEN} - {_PAST_STOP}, 0)", "orphaned"),
            ),
            look="stacked",
        ),
        Panel(
            "Prefix blocks reused",
            "Of the blocks of prompts, those whose KV the leaf still had. Falling: prompts differ more, or the cache "
            "is too small for the conversations that go on.",
            "percentunit",
            (
                Query(
                    ratio(
                        rate(vocabulary.LEAF_KV_BLOCKS, "model", where=('state="reused"',)),
                        rate(vocabulary.LEAF_KV_BLOCKS, "model"),
                    ),
                    "{{model}}",
                ),
            ),
            most=1,
        ),
        Panel(
            "Refused for want of room, of all asked",
            "How many chats of those asked found no room; a sick backend is no want of it. Above a few percent for "
            "long: more leaves, or fewer callers.",
            "percentunit",
            (
                Query(
                    share(
                        rate(vocabulary.ADMISSION_REFUSED, "model", where=('reason!~"breaker|not_ready"',)),
                        rate(vocabulary.REQUESTS, "model"),
                    ),
                    "{{model}}",
                ),
            ),
            most=1,
        ),
    ),
)

_LEAVES = Row(
    "Several leaves",
    (
        Panel(
            "In flight on each leaf",
            "Generations on each of a model's leaves, where it has several. One far above the others: affinity "
            "gathers callers there.",
            "short",
            (Query(now(vocabulary.LEAF_IN_FLIGHT, "model", "leaf"), "{{model}} on {{leaf}}"),),
            width=12,
        ),
        Panel(
            "Leaves left out",
            "Times that a leaf was found down, and left out for a while. Again and again: look at that leaf.",
            "short",
            (Query(increase(vocabulary.LEAF_LEFT_OUT, "model", "leaf"), "{{model}}: {{leaf}}"),),
            width=12,
        ),
    ),
)

_ENGINES = Row(
    "Other engines",
    (
        Panel(
            "TensorRT-LLM: what an iteration works on",
            "Tokens and requests in the engine's current batch. Context tokens at their limit: prompts fill the "
            "iterations, and decoding waits for them.",
            "short",
            (
                Query(
                    now(foreign.LEAF_BATCHER, "instance", "inflight_batcher_specific_metric"),
                    "{{inflight_batcher_specific_metric}} at {{instance}}",
                ),
            ),
            requires="tensorrt_llm",
        ),
        Panel(
            "TensorRT-LLM: first response, p95",
            "From Triton's taking a request to its first response, as Triton measures it. The router's time to first "
            "token less this is the way there and the wait for room.",
            "ms",
            (Query(quantile(0.95, foreign.FIRST_RESPONSE, *_RUN), _NAMED),),
            requires="tensorrt_llm",
        ),
        Panel(
            "vLLM: requests",
            "What vLLM decodes, and what it lets wait. Waiting for long: its KV is full, or its batch is.",
            "short",
            (
                Query(now(foreign.VLLM_RUNNING, "model_name"), "{{model_name}} running"),
                Query(now(foreign.VLLM_WAITING, "model_name"), "{{model_name}} waiting"),
            ),
            requires="vllm",
        ),
        Panel(
            "vLLM: KV used",
            "Above 95% vLLM preempts: requests are thrown out and begun again.",
            "percentunit",
            (Query(now(foreign.VLLM_KV_USAGE, "model_name", how="max"), "{{model_name}}"),),
            requires="vllm",
            most=1,
            worry_at=0.95,
        ),
        Panel(
            "vLLM: tokens generated",
            "What the engine wrote, whoever asked for it.",
            "cps",
            (Query(rate(foreign.VLLM_GENERATED, "model_name"), "{{model_name}}"),),
            requires="vllm",
        ),
        Panel(
            "vLLM: time to first token, p95",
            "As the engine sees it. The router's own less this is the way there.",
            "s",
            (Query(quantile(0.95, foreign.VLLM_FIRST_TOKEN, "model_name"), "{{model_name}}"),),
            requires="vllm",
        ),
    ),
)

DASHBOARD = Dashboard(
    "chat",
    "zooserve: chat",
    "Time to first token and per token, room for KV, how chats end, and tokens that nobody gets.",
    (_PACE, _ROOM, _ENDS, _LEAVES, _ENGINES),
    models='task="chat"',
)
