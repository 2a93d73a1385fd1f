"""The zoo: waiting against computing in every stage, how well it batches, what fails, what the cache spares."""

from zooserve_observability import foreign, vocabulary
from zooserve_observability.dashboards.expressions import now, rate, ratio, share
from zooserve_observability.dashboards.panels import Dashboard, Panel, Query, Row

__all__ = ["DASHBOARD"]

_STAGE = ("model", "version")
_NAMED = "{{model}} v{{version}}"
_SINGLE = ('model=~".+_(encoder|features|head|maxsim|ranker|reader|tokenizer)"',)
"""Stages that compute themselves: an ensemble has the times of its steps, which a stack would count twice."""


def _microseconds(family: foreign.ForeignMetric, named: str = _NAMED, where: tuple[str, ...] = ()) -> Query:
    """The mean of a time that Triton adds up, over the requests that it served."""
    return Query(ratio(rate(family, *_STAGE, where=where), rate(foreign.REQUEST_SUCCESS, *_STAGE, where=where)), named)


_WAITING = Row(
    "Waiting against computing",
    (
        Panel(
            "In the queue, p90",
            "Nine of ten requests waited at most this long in the stage's queue. Above 100 ms on a stage that is not "
            "a bulk one: requests come faster than it computes.",
            "µs",
            (Query(now(foreign.QUEUE_SUMMARY, *_STAGE, where=('quantile="0.9"',), how="max"), _NAMED),),
            traces="stage",
            width=6,
            worry_at=100_000,
        ),
        Panel(
            "In the queue, mean",
            "The mean wait in each stage's queue. Compare with the time of computing beside.",
            "µs",
            (_microseconds(foreign.QUEUE_TIME),),
            width=6,
        ),
        Panel(
            "Computing, mean",
            "The mean time in the model itself. Rising at the same load: larger batches, longer texts, or a busy "
            "machine.",
            "µs",
            (_microseconds(foreign.COMPUTE_INFER_TIME),),
            traces="stage",
            width=6,
        ),
        Panel(
            "Altogether, p90",
            "From a stage's taking a request to its answer, for nine of ten. Triton has no quantiles of stages with a "
            "response cache.",
            "µs",
            (Query(now(foreign.REQUEST_SUMMARY, *_STAGE, where=('quantile="0.9"',), how="max"), _NAMED),),
            traces="stage",
            width=6,
        ),
        Panel(
            "Share of time that is computing",
            "Below half, requests spend most of their time in the stage waiting or being copied: add an instance, or "
            "batch better. An ensemble has its steps' times.",
            "percentunit",
            (Query(ratio(rate(foreign.COMPUTE_INFER_TIME, *_STAGE), rate(foreign.REQUEST_TIME, *_STAGE)), _NAMED),),
            most=1,
        ),
        Panel(
            "Pending",
            "Requests that a stage has taken and not begun. Only climbing: it falls behind.",
            "short",
            (Query(now(foreign.PENDING, *_STAGE), _NAMED),),
        ),
        Panel(
            "Copying in and out, mean",
            "The mean time for inputs and outputs. Beyond a tenth of the computing, tensors are large for what is "
            "done with them.",
            "µs",
            (
                Query(
                    ratio(
                        f"{rate(foreign.COMPUTE_INPUT_TIME, *_STAGE)} + {rate(foreign.COMPUTE_OUTPUT_TIME, *_STAGE)}",
                        rate(foreign.REQUEST_SUCCESS, *_STAGE),
                    ),
                    _NAMED,
                ),
            ),
        ),
    ),
)

_STAGES = Row(
    "Stages of the ensembles (choose those of one under Stage)",
    (
        Panel(
            "Seconds computed in a second, by stage",
            "Stacked: how many instances' worth of computing the stages ask for together. Near the number of cores "
            "there is nothing left to give.",
            "short",
            (Query(f"{rate(foreign.COMPUTE_INFER_TIME, *_STAGE, where=_SINGLE)} / 1e6", _NAMED),),
            look="stacked",
            width=12,
        ),
        Panel(
            "Seconds waited in a second, by stage",
            "Stacked: the mean number of requests in the queues. The stage that is widest here is the one that holds "
            "its ensemble up.",
            "short",
            (Query(f"{rate(foreign.QUEUE_TIME, *_STAGE, where=_SINGLE)} / 1e6", _NAMED),),
            look="stacked",
            width=12,
        ),
        Panel(
            "A request's way through the stages",
            "Stacked: the mean wait and the mean computing of each stage. The tallest part is where to begin.",
            "µs",
            (
                _microseconds(foreign.QUEUE_TIME, "{{model}} v{{version}} waiting", _SINGLE),
                _microseconds(foreign.COMPUTE_INFER_TIME, "{{model}} v{{version}} computing", _SINGLE),
            ),
            look="stacked",
            width=24,
        ),
    ),
)

_BATCHES = Row(
    "Batches",
    (
        Panel(
            "Inferences",
            "Rows that the stages computed. One text is one row.",
            "cps",
            (Query(rate(foreign.INFERENCES, *_STAGE), _NAMED),),
        ),
        Panel(
            "Mean batch",
            "Rows in each execution. 1 under load on a stage that batches: nothing joins, mostly for unequal shapes.",
            "short",
            (Query(ratio(rate(foreign.INFERENCES, *_STAGE), rate(foreign.EXECUTIONS, *_STAGE)), _NAMED),),
        ),
        Panel(
            "Rows of a run",
            "Rows in each run of ONNX Runtime: our backend cuts a batch into runs of bounded size.",
            "short",
            (Query(ratio(rate(foreign.INFERENCES, *_STAGE), rate(foreign.BACKEND_RUNS, *_STAGE)), _NAMED),),
        ),
        Panel(
            "Elements of a run",
            "Rows times length, padding too, in each run. Much more than the texts are long: the buckets are too "
            "coarse.",
            "short",
            (Query(ratio(rate(foreign.BACKEND_ELEMENTS, *_STAGE), rate(foreign.BACKEND_RUNS, *_STAGE)), _NAMED),),
        ),
        Panel(
            "Runs, by instance",
            "Runs of each instance of a model. Instances of one model should stay close to each other.",
            "cps",
            (Query(rate(foreign.INSTANCE_RUNS, "model", "model_instance"), "{{model_instance}}"),),
        ),
        Panel(
            "Answers from the cache",
            "The share of requests that Triton's response cache answered, of the models that have one. Only counted "
            "where `response_cache_bytes` is set; 0 where nobody asks twice.",
            "percentunit",
            (
                Query(
                    share(
                        rate(foreign.CACHE_HITS, *_STAGE),
                        f"{rate(foreign.CACHE_HITS, *_STAGE)} + {rate(foreign.CACHE_MISSES, *_STAGE)}",
                    ),
                    _NAMED,
                ),
            ),
            most=1,
        ),
    ),
)

_FAILURES = Row(
    "Failures",
    (
        Panel(
            "Triton's failures, by reason",
            "REJECTED is a queue's timeout, CANCELED a caller who left, BACKEND a model that failed, OTHER an "
            "ensemble whose stage failed (counted twice). A full queue is not counted here: see below.",
            "cps",
            (Query(rate(foreign.REQUEST_FAILURE, "model", "reason"), "{{model}}: {{reason}}"),),
            width=12,
        ),
        Panel(
            "Failed stages, as the router learnt of them",
            "Requests to the zoo by the stage that failed or refused them, and why. `unknown` is a failure that no "
            "trace and no text tells.",
            "cps",
            (Query(rate(vocabulary.STAGE_FAILURES, "model", "stage", "reason"), "{{model}} in {{stage}}: {{reason}}"),),
            traces="failed",
            width=12,
        ),
    ),
)

DASHBOARD = Dashboard(
    "zoo",
    "zooserve: zoo",
    "Every stage of the zoo: waiting and computing, batches, failures, the response cache.",
    (_WAITING, _STAGES, _BATCHES, _FAILURES),
)
