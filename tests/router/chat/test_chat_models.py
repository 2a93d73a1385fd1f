"""What the router loads of its chat models: their room above all."""

from pathlib import Path

from zooserve.catalogue import Backend, Catalogue
from zooserve.settings import RouterSettings
from zooserve_router.chat.models import load_chat_models

ROOT = Path(__file__).parents[3]


def test_each_replica_has_its_share_of_the_room_and_a_bounded_queue(edge, chat_model) -> None:
    backend = Backend(kind="openai", max_in_flight=8)
    model = chat_model.model_copy(
        update={"runs_on": "engine", "tokenizer": None, "chat_template": None, "backend": backend}
    )
    bounds = RouterSettings(replicas=3, chat_max_waiting=7)
    queue = load_chat_models(Catalogue((model,)), ROOT, bounds, lambda _: edge.leaf)["chat"].queue
    assert (queue.budget.limit_tokens, queue.budget.limit_requests) == (333, 2)
    assert queue.most_waiting == 7


def test_an_upstream_without_a_budget_is_bounded_by_its_requests(edge, chat_model) -> None:
    backend = Backend(kind="openai", url="http://there/v1", max_in_flight=2)
    update = {"runs_on": "upstream", "tokenizer": None, "chat_template": None, "kv_budget_tokens": None}
    model = chat_model.model_copy(update={**update, "backend": backend})
    queue = load_chat_models(Catalogue((model,)), ROOT, RouterSettings(), lambda _: edge.leaf)["chat"].queue
    assert queue.budget.limit_tokens is None
    assert queue.budget.has_room_for(10**9, 1)
    queue.budget.take(10**9, 2)
    assert not queue.budget.has_room_for(1, 1)
