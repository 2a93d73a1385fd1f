"""Codes of errors in labels and logs are our own, whatever an upstream says."""

import orjson

from zooserve.errors import BadInput, ModelNotFound, ServingError
from zooserve_router.backends.refusals import fault_in, refusal
from zooserve_router.dialects import SHAPES
from zooserve_router.reasons import UPSTREAMS, reason_of


def test_an_error_of_ours_is_named_by_its_code() -> None:
    assert reason_of(ModelNotFound("m")) == "model_not_found"
    assert reason_of(BadInput("m", code="invalid_type")) == "invalid_type"
    assert reason_of(ServingError("m")) is None


def test_an_upstreams_code_reaches_the_caller_and_no_label() -> None:
    said = {"error": {"message": "no", "code": "prompt 'my secret' is not allowed"}}
    error = refusal(400, fault_in(said), "chat", "chat")
    assert reason_of(error) == UPSTREAMS
    told = orjson.loads(orjson.dumps(SHAPES["openai"](error)))
    assert told["error"]["code"] == "prompt 'my secret' is not allowed"


def test_an_upstreams_code_stays_its_own_when_an_error_is_made_of_it_again() -> None:
    error = refusal(400, fault_in({"error": {"message": "no", "code": "strange"}}), "chat", "chat")
    assert reason_of(type(error)("other words", code=error.code)) == UPSTREAMS
