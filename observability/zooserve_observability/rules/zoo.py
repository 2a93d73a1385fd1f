"""The zoo: waiting against computing in each stage, failures by reason, and servers of one model beside each other.

Bulk stages are left out where waiting is meant: their queues are long by design.
"""

from zooserve_observability import foreign, vocabulary
from zooserve_observability.rules.promql import among, selected, series, summed
from zooserve_observability.rules.recording import beyond_habit, imbalance, rate
from zooserve_observability.rules.rule import Alert, Condition, Recording

__all__ = ["ALERTS", "RECORDINGS"]

_STAGE = ("model", "version")
_ZOO = among("job", "zoo")
"""The leaf's Triton has the same series; its model answers while it computes, so the shares of its time say nothing."""
_NOT_BULK = 'model!~".*_bulk(_.*)?"'

_stage_requests = rate("zooserve:stage_requests:rate5m", foreign.REQUEST_SUCCESS, "5m", _STAGE, (_ZOO,))
_computing = summed(foreign.COMPUTE_INFER_TIME, "5m", _STAGE, (_ZOO,))
_whole_time = summed(foreign.REQUEST_TIME, "5m", _STAGE, (_ZOO,))
# Of a pipeline Triton adds up what its stages compute.
_stage_compute = Recording("zooserve:stage_compute:ratio_rate5m", f"{_computing}\n/\n({_whole_time} > 0)", _STAGE)
_served = summed(foreign.REQUEST_SUCCESS, "5m", _STAGE, (_ZOO,))
_stage_time = Recording("zooserve:stage_seconds:mean5m", f"{_whole_time}\n/\n({_served} > 0)\n/ 1e6", _STAGE)
_triton_failures = rate("zooserve:triton_failures:rate5m", foreign.REQUEST_FAILURE, "5m", ("model", "reason"))
_triton_failures_rise = beyond_habit("zooserve:triton_failures:rise5m", foreign.REQUEST_FAILURE, ("model", "reason"))
_BY_STAGE = ("model", "stage", "reason")
_stage_failures = rate("zooserve:stage_failures:rate5m", vocabulary.STAGE_FAILURES, "5m", _BY_STAGE)
_stage_failures_rise = beyond_habit("zooserve:stage_failures:rise5m", vocabulary.STAGE_FAILURES, _BY_STAGE)
_ON_SERVER = (*_STAGE, "instance")
_runs = rate("zooserve:server_runs:rate5m", foreign.EXECUTIONS, "5m", _ON_SERVER, (_ZOO,))
_server_imbalance = imbalance("zooserve:server_runs:imbalance5m", _runs.expr, _STAGE, "instance")
_BY_INSTANCE = (*_ON_SERVER, "model_instance")
_instance_runs = summed(foreign.INSTANCE_RUNS, "5m", _BY_INSTANCE)
_instance_imbalance = imbalance("zooserve:instance_runs:imbalance5m", _instance_runs, _ON_SERVER, "model_instance")
_pending = Recording(
    "zooserve:stage_pending:mean5m",
    f"sum by ({', '.join(_ON_SERVER)}) (avg_over_time({selected(foreign.PENDING, (_ZOO,))}[5m]))",
    _ON_SERVER,
)
# The queue is the stage's: each of its instances stands before the same.
_instance_pending = Recording(
    "zooserve:instance_pending:mean5m",
    f"0 * {_instance_runs}\n+ on ({', '.join(_ON_SERVER)}) group_left ()\n{_pending.expr}",
    _BY_INSTANCE,
)

RECORDINGS = (
    _stage_requests,
    _stage_compute,
    _stage_time,
    _triton_failures,
    _triton_failures_rise,
    _stage_failures,
    _stage_failures_rise,
    _runs,
    _server_imbalance,
    _instance_imbalance,
    _pending,
    _instance_pending,
)

ALERTS = (
    Alert(
        "ZooserveQueueLong",
        (Condition(series(foreign.QUEUE_SUMMARY, among("quantile", "0.9"), _NOT_BULK), ">", 100_000),),
        "5m",
        "ticket",
        "zoo",
        "zoo",
        'A tenth of the requests wait more than {{ $value | printf "%.0f" }} us in the queue of {{ $labels.model }}',
        "More than 100 ms (the series is in microseconds): requests come faster than this stage computes.",
    ),
    Alert(
        "ZooserveStageMostlyWaits",
        (
            Condition(_stage_compute.where(_NOT_BULK), "<", 0.5),
            Condition(_stage_requests.where(_NOT_BULK), ">", 1),
            # Where a request takes a millisecond, most of it is the way there and back.
            Condition(_stage_time.where(_NOT_BULK), ">", 0.02),
        ),
        "10m",
        "ticket",
        "zoo",
        "zoo",
        "Only {{ $value | humanizePercentage }} of the time in {{ $labels.model }} is computing",
        "Requests spend most of their time in the stage waiting or being copied: add an instance, or batch better.",
    ),
    Alert(
        "ZooserveTritonFailuresRise",
        (Condition(_triton_failures_rise.where('reason!="CANCELED"'), ">", 0.05),),
        "5m",
        "ticket",
        "zoo",
        "zoo",
        "{{ $labels.model }} fails more often than it used to: {{ $labels.reason }}",
        "Triton counts failures of this reason well above their habit of the last six hours.",
    ),
    Alert(
        "ZooserveStageFailuresRise",
        (Condition(_stage_failures_rise.where(), ">", 0.05),),
        "5m",
        "ticket",
        "zoo",
        "zoo",
        "{{ $labels.model }} fails more often than it used to in {{ $labels.stage }}: {{ $labels.reason }}",
        "The router saw requests end in this stage well above their habit of the last six hours.",
    ),
    Alert(
        "ZooserveServersUneven",
        (Condition(_server_imbalance.where(), ">", 1.5), Condition(_runs.where(), ">", 5)),
        "15m",
        "ticket",
        "zoo",
        "capacity",
        '{{ $labels.instance }} runs {{ $labels.model }} {{ $value | printf "%.3g" }} times as often as its share',
        "Several servers have this model, and the load is not spread over them.",
    ),
    # One request at a time may well go to the same instance: uneven is a fault only where others wait meanwhile.
    Alert(
        "ZooserveInstancesUneven",
        (Condition(_instance_imbalance.where(), ">", 1.5), Condition(_instance_pending.where(), ">", 1)),
        "15m",
        "ticket",
        "zoo",
        "zoo",
        '{{ $labels.model_instance }} on {{ $labels.instance }} runs {{ $value | printf "%.3g" }} times its share',
        "Requests wait for this stage while another of its instances has less to do.",
    ),
)
