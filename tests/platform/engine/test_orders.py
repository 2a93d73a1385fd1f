"""What an engine server is told."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from zooserve.engine.orders import EngineOrders
from zooserve.settings import EngineServerSettings


def test_orders_say_what_the_settings_say_for_one_repository() -> None:
    settings = EngineServerSettings(port=4444, key="k1", slots=2, context_per_slot=512, threads=1)
    orders = EngineOrders.of(settings, Path("/repository"), ["chat_json", "other"])
    assert (orders.host, orders.port, orders.key) == ("127.0.0.1", 4444, "k1")
    assert (orders.slots, orders.context_per_slot, orders.threads) == (2, 512, 1)
    assert orders.gguf == Path("/repository/leaf/tensorrt_llm/1/model.gguf")
    assert orders.names == ("chat_json", "other")
    assert EngineOrders.model_validate_json(orders.model_dump_json()) == orders


def test_an_absolute_model_stays_where_it_is() -> None:
    settings = EngineServerSettings(port=4444, key="k1", gguf=Path("/models/better.gguf"))
    assert EngineOrders.of(settings, Path("/repository"), ["chat_json"]).gguf == Path("/models/better.gguf")


@pytest.mark.parametrize("lacking", [{"key": ""}, {"names": ()}])
def test_an_engine_without_a_key_or_a_name_is_not_started(lacking: dict[str, object]) -> None:
    settings = EngineServerSettings(port=4444, key="k1")
    whole = EngineOrders.of(settings, Path("/repository"), ["chat_json"]).model_dump()
    with pytest.raises(ValidationError):
        EngineOrders.model_validate({**whole, **lacking})


def test_the_key_is_not_printed() -> None:
    settings = EngineServerSettings(port=4444, key="very-secret")
    assert "very-secret" not in repr(settings)
    assert "very-secret" not in repr(EngineOrders.of(settings, Path("/repository"), ["chat_json"]))
