"""Who answers a request, and who sees it: drawn from its id or its caller, the same wherever and whenever it is."""

from typing import Any

import pytest

from zooserve.catalogue import Canary, Catalogue, Limits, Model, Releases, Shadow
from zooserve_router.context import ANONYMOUS, Deadline, RequestContext
from zooserve_router.releases import ReleasePolicy, is_drawn, point_of, release_labels

IDS = [f"req_{number}" for number in range(10_000)]


def entry(name: str, version: int = 1, releases: Releases | None = None) -> Model:
    return Model(
        name=name,
        task="rerank",
        runs_on="zoo",
        triton={"interactive": name},
        version=version,
        releases=releases,
        limits=Limits(max_tokens=10),
        licence="MIT",
        source="here",
    )


def catalogue(releases: Releases) -> Catalogue:
    return Catalogue((entry("rank", releases=releases), entry("next", 2), entry("trees", 3)))


def context(request_id: str = "req_1", caller: str = ANONYMOUS) -> RequestContext:
    return RequestContext(request_id, Deadline.after(10), caller=caller)


def works(name: str) -> bool:
    return True


def answering(policy: ReleasePolicy, models: Catalogue, request_id: str, caller: str = ANONYMOUS) -> str:
    return policy.answering(models.resolve("rank"), context(request_id, caller)).name


@pytest.mark.parametrize(
    ("share", "drawn"), [(0.001, 13), (0.01, 107), (0.1, 1016), (0.25, 2525), (0.5, 5043), (0.9, 9027), (1.0, 10_000)]
)
def test_of_ten_thousand_ids_as_many_are_drawn_as_the_share_says(share: float, drawn: int) -> None:
    """The figures are pinned: another hash would give callers another release."""
    assert sum(is_drawn("canary", "rank", request_id, share) for request_id in IDS) == drawn
    four_sigma = 4 * (10_000 * share * (1 - share)) ** 0.5
    assert abs(drawn - 10_000 * share) <= four_sigma


def test_a_larger_share_takes_in_whom_a_smaller_one_had() -> None:
    few, many = ({one for one in IDS if is_drawn("canary", "rank", one, share)} for share in (0.1, 0.3))
    assert few < many


def test_canary_and_shadow_and_two_models_are_drawn_apart() -> None:
    """Else a shadow of one request in ten would only ever see the requests of one caller in ten."""
    apart: list[tuple[Any, str]] = [("canary", "rank"), ("shadow", "rank"), ("canary", "next")]
    drawn = [{one for one in IDS if point_of(role, model, one) < 0.1} for role, model in apart]
    assert [len(drawn[0] & other) for other in drawn[1:]] == [98, 96]  # a hundred by chance


def test_a_retry_with_the_same_id_meets_the_same_release() -> None:
    models = catalogue(Releases(canary=Canary(model="next", share=0.5)))
    policies = [ReleasePolicy(models, works) for _ in range(2)]  # two replicas
    met = [[answering(policy, models, request_id) for request_id in IDS[:200]] for policy in (*policies, policies[0])]
    assert met[0] == met[1] == met[2]
    assert set(met[0]) == {"rank", "next"}


def test_by_caller_each_keeps_one_release_whatever_he_sends() -> None:
    models = catalogue(Releases(canary=Canary(model="next", share=0.5, by="caller")))
    policy = ReleasePolicy(models, works)
    met = {
        caller: {answering(policy, models, one, caller) for one in IDS[:50]} for caller in ("ann", "bob", "eve", "joe")
    }
    assert met == {"ann": {"rank"}, "bob": {"rank"}, "eve": {"next"}, "joe": {"rank"}}


def test_by_caller_whoever_names_nobody_is_drawn_by_his_requests() -> None:
    models = catalogue(Releases(canary=Canary(model="next", share=0.5, by="caller")))
    met = [answering(ReleasePolicy(models, works), models, one) for one in IDS]
    assert met.count("next") == 5043


@pytest.mark.parametrize("name", ["next", "rank@1", "next@2"])
def test_who_names_the_release_gets_it(name: str) -> None:
    models = catalogue(Releases(canary=Canary(model="next", share=1.0)))
    asked = models.resolve(name)
    answers = ReleasePolicy(models, works).answering(asked, context())
    assert answers == asked
    assert release_labels(answers) is None


def test_a_canary_that_is_not_ready_or_not_enabled_gets_nothing() -> None:
    models = catalogue(Releases(canary=Canary(model="next", share=1.0)))
    assert answering(ReleasePolicy(models, works), models, "req_1") == "next"
    assert answering(ReleasePolicy(models, lambda name: name != "next"), models, "req_1") == "rank"
    without = models.enabling("rank")
    assert answering(ReleasePolicy(without, works), without, "req_1") == "rank"


def test_a_canary_answers_in_the_name_of_the_model_that_was_asked() -> None:
    models = catalogue(Releases(canary=Canary(model="next", share=1.0)))
    answers = ReleasePolicy(models, works).answering(models.resolve("rank"), context())
    assert (answers.name, answers.public_name, answers.version) == ("next", "rank", 2)
    assert release_labels(answers) == ("rank", "next", "2", "canary")
    assert release_labels(models.resolve("rank")) == ("rank", "rank", "1", "serving")


def test_a_shadow_sees_its_share_of_what_serving_one_and_canary_answer() -> None:
    models = catalogue(Releases(canary=Canary(model="next", share=0.5), shadow=Shadow(model="trees", share=0.25)))
    policy, asked = ReleasePolicy(models, works), models.resolve("rank")
    seen = {"rank": 0, "next": 0}
    for one in IDS:
        answers = policy.answering(asked, context(one))
        shadow = policy.shadow_of(answers, one)
        seen[answers.name] += shadow is not None
        assert shadow is None or shadow.name == "trees"
    assert seen == {"rank": 1204, "next": 1215}
    assert policy.shadow_of(models.resolve("rank@1"), IDS[0]) is None
    assert ReleasePolicy(models.enabling("rank,next"), works).shadow_of(asked, IDS[0]) is None


def test_the_shares_are_what_the_releases_get_now() -> None:
    models = catalogue(Releases(canary=Canary(model="next", share=0.25), shadow=Shadow(model="trees", share=0.5)))
    down: set[str] = set()
    policy = ReleasePolicy(models, lambda name: name not in down)
    serving, canary, shadow = (
        ("rank", "rank", "1", "serving"), ("rank", "next", "2", "canary"), ("rank", "trees", "3", "shadow")
    )  # fmt: skip
    assert dict(policy.shares()) == {serving: 0.75, canary: 0.25, shadow: 0.5}
    down.update(("next", "trees"))
    assert dict(policy.shares()) == {serving: 1.0, canary: 0.0, shadow: 0.0}
    assert dict(ReleasePolicy(models.enabling("rank"), works).shares()) == {serving: 1.0, canary: 0.0, shadow: 0.0}
    assert dict(ReleasePolicy(models.enabling("next,trees"), works).shares()) == {}
