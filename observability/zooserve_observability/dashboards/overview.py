"""Is it well: the four golden signals by model and version, what is refused, what was healed, what is served."""

from zooserve_observability import foreign, vocabulary
from zooserve_observability.dashboards.expressions import increase, now, quantile, rate, share
from zooserve_observability.dashboards.panels import Dashboard, Panel, Query, Row, State
from zooserve_observability.rules.promql import among
from zooserve_observability.rules.slo import AVAILABILITY, FAILURES

__all__ = ["DASHBOARD"]

_RUN = ("model", "version")
_NAMED = "{{model}} v{{version}}"
_FAILED = among("outcome", *(failure.__name__ for failure in FAILURES))


def _duration(title: str, which: float, watch: str) -> Panel:
    expression = quantile(which, vocabulary.REQUEST_DURATION, *_RUN)
    return Panel(title, watch, "s", (Query(expression, _NAMED),), traces="slow")


_SIGNALS = Row(
    "Golden signals",
    (
        Panel(
            "Requests",
            "Requests that ended, however they ended. Worry when a model's line drops while its callers have not left.",
            "reqps",
            (Query(rate(vocabulary.REQUESTS, *_RUN), _NAMED),),
            traces="all",
        ),
        Panel(
            "What did not end well",
            "Everything but ok, by the error's name; a caller's own mistakes (RequestInvalid, ModelNotFound) and "
            "cancellations are here, too. Worry about what is new.",
            "reqps",
            (Query(rate(vocabulary.REQUESTS, "model", "outcome", where=('outcome!="ok"',)), "{{model}}: {{outcome}}"),),
            traces="all",
        ),
        Panel(
            "Share of failures",
            f"Requests answered with a 5xx, of all. The objective allows {100 * (1 - AVAILABILITY):.4g}% over a month: "
            "above that for long, look at the dashboard of the objectives.",
            "percentunit",
            (
                Query(
                    share(rate(vocabulary.REQUESTS, *_RUN, where=(_FAILED,)), rate(vocabulary.REQUESTS, *_RUN)), _NAMED
                ),
            ),
            traces="failed",
            worry_at=round(1 - AVAILABILITY, 10),
        ),
        _duration(
            "Duration, p50", 0.5, "Half of the requests took at most this long. It moves with the work asked for."
        ),
        _duration(
            "Duration, p90",
            0.9,
            "Nine of ten requests took at most this long. Rising away from the p50: something waits. See zoo and chat.",
        ),
        _duration(
            "Duration, p99",
            0.99,
            "The slowest of a hundred. One slow model is its own matter; all of them at once is the machine's.",
        ),
        Panel(
            "In flight",
            "Requests being worked on, by node. A line that only climbs means that work comes faster than it goes.",
            "short",
            (Query(now(vocabulary.IN_FLIGHT, "instance"), "{{instance}}"),),
        ),
        Panel(
            "Waiting to be admitted, p90",
            "How long nine of ten admitted requests waited at most for room in their model's budget. Near the "
            "callers' patience: more replicas, or fewer callers.",
            "s",
            (Query(quantile(0.9, vocabulary.ADMISSION_WAIT, *_RUN), _NAMED),),
            traces="slow",
        ),
        Panel(
            "Tokens",
            "Tokens read and written. The best measure of how much work is asked for: a long text costs like many "
            "short.",
            "cps",
            (Query(rate(vocabulary.TOKENS, "model", "direction"), "{{model}} {{direction}}"),),
        ),
    ),
)

_REFUSALS = Row(
    "Refused, and ways to the backends",
    (
        Panel(
            "Refused for want of room",
            "Requests that a model had no room for: tokens, requests and queue are overload, deadline is callers in a "
            "hurry, breaker and not_ready are a sick backend.",
            "reqps",
            (Query(rate(vocabulary.ADMISSION_REFUSED, "model", "reason"), "{{model}}: {{reason}}"),),
        ),
        Panel(
            "Refused, by error code",
            "Everything answered with a 4xx before any work was done. A sudden new code is mostly one caller's "
            "release.",
            "reqps",
            (Query(rate(vocabulary.REFUSED, "reason"), "{{reason}}"),),
        ),
        Panel(
            "Another embedding space asked for",
            "Requests that named another space than the model's, and were refused: whoever sends them would compare "
            "vectors that cannot be compared. Any at all is a caller to be told.",
            "reqps",
            (Query(rate(vocabulary.SPACE_MISMATCHES, *_RUN), _NAMED),),
        ),
        Panel(
            "Circuit breakers",
            "The worst of all replicas. Open: that backend gets no requests for a while; look at its log.",
            "none",
            (Query(now(vocabulary.BREAKER_STATE, "endpoint", how="max"), "{{endpoint}}"),),
            look="states",
            states=(State(0, "closed", "green"), State(1, "half open", "yellow"), State(2, "open", "red")),
        ),
        Panel(
            "Breakers that opened",
            "Times that a breaker opened. More than once in an hour: the backend recovers and fails again.",
            "short",
            (Query(increase(vocabulary.BREAKER_OPENED, "endpoint"), "{{endpoint}}"),),
        ),
        Panel(
            "Second tries",
            "Tries after nothing had been sent to the caller. Denied means that the retry budget is used up: the "
            "backend fails more than now and then.",
            "cps",
            (Query(rate(vocabulary.RETRIES, "endpoint", "outcome"), "{{endpoint}}: {{outcome}}"),),
        ),
    ),
)

_SERVED = Row(
    "What is served",
    (
        Panel(
            "Ready",
            "What the router finds ready, by any replica's worst opinion. Red for more than a few seconds: `zooserve "
            "status`, then the server's log.",
            "none",
            (Query(now(vocabulary.MODEL_READY, *_RUN, how="min"), _NAMED),),
            look="states",
            width=12,
            states=(State(0, "not ready", "red"), State(1, "ready", "green")),
        ),
        Panel(
            "Models and weights",
            "What runs where, the beginning of the digest of its weights, and how much it is asked. Two rows for one "
            "model and version: nodes serve different weights.",
            "reqps",
            (
                Query(
                    f"{rate(vocabulary.REQUESTS, *_RUN)} * on (model, version) group_right () "
                    f"{now(vocabulary.MODEL_INFO, *vocabulary.MODEL_INFO.labels, how='max')}",
                    "",
                ),
            ),
            look="table",
            width=12,
        ),
        Panel(
            "Servers started again",
            "Servers that the supervisor found dead or hung. Any at all: `logs/supervisor.log` says why.",
            "short",
            (Query(increase(vocabulary.SERVER_RESTARTS, "server"), "{{server}}"),),
            width=6,
        ),
        Panel(
            "Models loaded again",
            "Triton models whose stub was sick. One model again and again is a fault of its code or its weights.",
            "short",
            (Query(increase(vocabulary.MODEL_RELOADS, "triton_model"), "{{triton_model}}"),),
            width=6,
        ),
        Panel(
            "Probes that failed",
            "Real inferences by which the supervisor looks at models that nobody asks. Several in a row end in a "
            "reload.",
            "short",
            (Query(increase(vocabulary.PROBE_FAILURES, "triton_model"), "{{triton_model}}"),),
            width=6,
        ),
        Panel(
            "Warm-ups that failed",
            "Buckets that a stage could not run when it was warmed up, since it started. More than 0: requests of "
            "that length fail, or the first of them is slow.",
            "short",
            (Query(now(vocabulary.WARMUP_FAILURES, "triton_model", "version"), "{{triton_model}} v{{version}}"),),
            width=6,
        ),
    ),
)

_TRACES = Row(
    "Traces and logs",
    (
        Panel(
            "Spans taken",
            "Spans that whoever takes them has taken. All three at 0 under load: tracing is off, or nothing arrives.",
            "cps",
            (Query(rate(vocabulary.SPANS_EXPORTED, "exporter"), "{{exporter}}"),),
        ),
        Panel(
            "Spans lost",
            "Spans lost on their way; requests are not affected. queue_full: the collector is too slow, failed: it "
            "does not answer, disk: there is no room for the log.",
            "cps",
            (Query(rate(vocabulary.SPANS_DROPPED, "exporter", "reason"), "{{exporter}}: {{reason}}"),),
        ),
        Panel(
            "Log lines lost",
            "Lines that did not get into a log, because too many waited or the disk took none. Any: that log has gaps.",
            "cps",
            (Query(rate(vocabulary.LOG_LINES_DROPPED, "log"), "{{log}}"),),
        ),
        Panel(
            "Traces decided",
            "What the trace log made of whole traces. Errors and slow ones are always kept; their share is worth a "
            "look.",
            "cps",
            (Query(rate(vocabulary.TRACES_DECIDED, "decision"), "{{decision}}"),),
            look="stacked",
            width=12,
        ),
        Panel(
            "Trace log",
            "What the trace log takes. It is bounded: flat is as it should be, once it has filled.",
            "bytes",
            (Query(now(vocabulary.TRACE_LOG_BYTES, "place"), "{{place}}"),),
            width=12,
        ),
        Panel(
            "Duration by span, p95, with single requests",
            "What the Collector measured of every span, whether its trace was kept or not. A point is one request: a "
            "click leads to its trace. A stage that climbs alone is the one to look at.",
            "s",
            (
                Query(
                    quantile(0.95, foreign.SPAN_DURATION, "service_name", "span_name"),
                    "{{service_name}}: {{span_name}}",
                ),
            ),
            requires="collector",
            exemplars=True,
            width=12,
        ),
        Panel(
            "Lost in the Collector",
            "Spans that it refused (its memory is full; the router tries again), could not send to Tempo, or had no "
            "room for in its queue; and traces dropped before they were decided. Any for long: its log, and Tempo's.",
            "cps",
            (
                Query(rate(foreign.COLLECTOR_REFUSED, "instance"), "{{instance}}: refused"),
                Query(rate(foreign.COLLECTOR_NOT_SENT, "instance"), "{{instance}}: not sent"),
                Query(rate(foreign.COLLECTOR_NOT_QUEUED, "instance"), "{{instance}}: queue full"),
                Query(rate(foreign.COLLECTOR_UNDECIDED, "instance"), "{{instance}}: traces undecided"),
            ),
            requires="collector",
            width=12,
        ),
    ),
)

DASHBOARD = Dashboard(
    "overview",
    "zooserve: overview",
    "Traffic, errors, duration and saturation by model and version; refusals, remedies, what is served, and traces.",
    (_SIGNALS, _REFUSALS, _SERVED, _TRACES),
)
