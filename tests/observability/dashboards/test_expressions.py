"""PromQL made from the vocabulary."""

import pytest

from zooserve_observability import foreign, vocabulary
from zooserve_observability.dashboards.expressions import increase, mean, now, quantile, rate, ratio, selected, share

CHOSEN = 'model=~"$model", version=~"$version", class=~"$class", instance=~"$instance"'


def test_a_rate_obeys_every_variable_that_its_labels_have() -> None:
    assert rate(vocabulary.REQUESTS, "model", where=('outcome="ok"',)) == (
        f'sum by (model) (rate(zooserve_requests_total{{{CHOSEN}, outcome="ok"}}[$__rate_interval]))'
    )
    assert rate(vocabulary.RETRIES) == 'sum(rate(zooserve_retries_total{instance=~"$instance"}[$__rate_interval]))'


def test_tritons_series_are_the_zoos_and_obey_its_variables() -> None:
    assert selected(foreign.PENDING) == (
        'nv_inference_pending_request_count{job="zoo", model=~"$stage", instance=~"$server"}'
    )
    assert selected(foreign.LEAF_KV_TOKENS) == "zooserve_leaf_kv_tokens{}"


def test_an_increase_and_a_gauge_and_its_worst() -> None:
    assert increase(vocabulary.BREAKER_OPENED, "endpoint") == (
        'sum by (endpoint) (increase(zooserve_breaker_opened_total{instance=~"$instance"}[$__rate_interval]))'
    )
    assert now(vocabulary.BREAKER_STATE, "endpoint", how="max") == (
        'max by (endpoint) (zooserve_breaker_state{instance=~"$instance"})'
    )


def test_a_quantile_keeps_the_buckets_bounds_and_a_mean_divides_sum_by_count() -> None:
    assert quantile(0.9, vocabulary.FIRST_TOKEN, "model") == (
        "histogram_quantile(0.9, sum by (le, model) "
        f"(rate(zooserve_time_to_first_token_seconds_bucket{{{CHOSEN}}}[$__rate_interval])))"
    )
    assert mean(vocabulary.ADMISSION_WAIT) == (
        f"sum(rate(zooserve_admission_wait_seconds_sum{{{CHOSEN}}}[$__rate_interval]))"
        f" / sum(rate(zooserve_admission_wait_seconds_count{{{CHOSEN}}}[$__rate_interval]))"
    )


def test_what_is_put_together_stays_together_in_a_ratio() -> None:
    assert ratio("a + b", "c") == "(a + b) / c"
    assert share("a", "b + c") == "(a or 0 * (b + c)) / (b + c)"


@pytest.mark.parametrize(
    ("by", "where"), [(("modell",), ()), ((), ('outcom="ok"',)), (("le",), ())], ids=["by", "where", "bucket"]
)
def test_a_label_that_a_metric_does_not_have_is_refused(by: tuple[str, ...], where: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"zooserve_requests_total has no label (modell|outcom|le); it has model, "):
        rate(vocabulary.REQUESTS, *by, where=where)


def test_a_summary_may_be_asked_by_quantile_and_a_histogram_by_bound() -> None:
    assert 'quantile="0.9"' in now(foreign.QUEUE_SUMMARY, "model", where=('quantile="0.9"',))
    assert 'le="1.28"' in selected(vocabulary.FIRST_TOKEN, "_bucket", where=('le="1.28"',))
