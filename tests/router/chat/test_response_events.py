"""The events of a response, from the steps of an answer; every one is checked against the openai SDK's own types."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from zooserve.errors import BackendFailed, DeadlineExceeded, Overloaded
from zooserve_router.chat.ask import Step
from zooserve_router.chat.generation import TokenLogprob, ToolCallPart
from zooserve_router.context import Record
from zooserve_router.endpoints.responses.body import ResponseBody

ANY_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
ASKED = {"model": "chat", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


def told(steps: Iterable[Step], *, with_logprobs: bool = False) -> list[dict[str, Any]]:
    """All events of a response that ends well, each as the SDK knows it."""
    body = ResponseBody(ASKED, with_logprobs=with_logprobs)
    record = Record(input_tokens=3, output_tokens=2)
    events = [*body.opening(), *chain.from_iterable(body.written(step) for step in steps), *body.closing(record)]
    for event in events:
        assert ANY_EVENT.validate_python(event).type == event["type"]
    return events


def types_of(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def only(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == f"response.{kind}"]


def test_a_text_is_announced_told_in_deltas_and_said_whole() -> None:
    events = told([Step(0, "Hel"), Step(0, "lo"), Step(0, "", "stop", 2)])
    assert types_of(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(10))
    assert len({event["item_id"] for event in events if "item_id" in event}) == 1
    assert only(events, "output_item.added")[0]["item"]["content"] == []
    assert only(events, "output_text.done")[0]["text"] == "Hello"
    response = Response.model_validate(events[-1]["response"])
    assert response.output_text == "Hello"
    assert response.status == "completed"
    assert response.completed_at is not None
    assert only(events, "output_item.done")[0]["item"] == events[-1]["response"]["output"][0]


def test_the_response_has_one_id_and_time_in_all_its_events() -> None:
    events = told([Step(0, "Hi", "stop", 1)])
    heads = [event["response"] for event in events if "response" in event]
    assert len({(head["id"], head["created_at"]) for head in heads}) == 1
    assert [head["status"] for head in heads] == ["in_progress", "in_progress", "completed"]
    assert [head["usage"] is None for head in heads] == [True, True, False]


def test_usage_comes_with_the_end() -> None:
    body, record = ResponseBody(ASKED), Record()
    list(body.written(Step(0, "Hi", "stop", 1)))
    record.counted(7, 5, cached_tokens=4, reasoning_tokens=2)
    assert body.whole(record)["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }


@pytest.mark.parametrize(
    ("reason", "told_reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
def test_an_answer_that_was_cut_is_incomplete_and_says_why(reason, told_reason) -> None:
    events = told([Step(0, "Hel"), Step(0, "", reason, 1)])
    assert events[-1]["type"] == "response.incomplete"
    response = Response.model_validate(events[-1]["response"])
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == told_reason
    assert response.completed_at is None
    assert events[-1]["response"]["output"][0]["status"] == "incomplete"


def test_functions_are_called_in_items_of_their_own_after_the_text() -> None:
    first = ToolCallPart(0, id="call_a", name="weather")
    second = ToolCallPart(1, '{"city":"Rome"}', "call_b", "weather")
    events = told(
        [
            Step(0, "Let me see."),
            Step(0, tool_calls=(first,)),
            Step(0, tool_calls=(ToolCallPart(0, '{"city":'),)),
            Step(0, tool_calls=(ToolCallPart(0, '"Bern"}'), second)),
            Step(0, "", "tool_calls", 9),
        ]
    )
    call = ["output_item.added", *["function_call_arguments.delta"] * 2, "function_call_arguments.done"]
    assert types_of(events)[7:12] == ["output_item.done", *call]
    assert [event["arguments"] for event in only(events, "function_call_arguments.done")] == [
        '{"city":"Bern"}',
        '{"city":"Rome"}',
    ]
    message, bern, rome = Response.model_validate(events[-1]["response"]).output
    assert (message.type, bern.type, rome.type) == ("message", "function_call", "function_call")
    assert (bern.call_id, bern.name, bern.status) == ("call_a", "weather", "completed")
    assert bern.id != rome.id
    assert [event["output_index"] for event in only(events, "output_item.done")] == [0, 1, 2]


def test_a_call_that_is_the_whole_answer_has_no_message_beside_it() -> None:
    call = ToolCallPart(0, "{}", "call_a", "now")
    response = told([Step(0, "", "tool_calls", 1, (call,))])[-1]["response"]
    assert [item["type"] for item in response["output"]] == ["function_call"]


def test_an_empty_answer_is_an_empty_message() -> None:
    response = Response.model_validate(told([Step(0, "", "stop")])[-1]["response"])
    assert response.output_text == ""
    assert [item.type for item in response.output] == ["message"]


def test_an_answer_without_an_end_is_no_whole_one() -> None:
    body = ResponseBody(ASKED)
    list(body.written(Step(0, "Hel")))
    with pytest.raises(BackendFailed, match="broke its answer off"):
        list(body.closing(Record()))


def test_more_of_a_call_that_has_ended_fails_instead_of_being_lost() -> None:
    body = ResponseBody(ASKED)
    list(body.written(Step(0, tool_calls=(ToolCallPart(0, "{", "a", "f"), ToolCallPart(1, "{}", "b", "f")))))
    with pytest.raises(BackendFailed):
        list(body.written(Step(0, tool_calls=(ToolCallPart(0, "}"),))))


def test_reasoning_is_an_item_before_the_message() -> None:
    events = told([Step(0, reasoning="Hm"), Step(0, reasoning="."), Step(0, "Yes", "stop", 3)])
    assert types_of(events)[2:9] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
    ]
    reasoning, message = Response.model_validate(events[-1]["response"]).output
    assert reasoning.type == "reasoning"
    assert reasoning.content is not None
    assert reasoning.content[0].text == "Hm."
    assert message.type == "message"


def test_a_refusal_is_a_part_of_its_own_kind() -> None:
    events = told([Step(0, refusal="I will "), Step(0, "", "stop", 2, refusal="not.")])
    assert [event["delta"] for event in only(events, "refusal.delta")] == ["I will ", "not."]
    assert only(events, "refusal.done")[0]["refusal"] == "I will not."
    assert events[-1]["response"]["output"][0]["content"] == [{"type": "refusal", "refusal": "I will not."}]


def test_a_refusal_after_text_is_the_second_part_of_the_message() -> None:
    events = told([Step(0, "Well"), Step(0, refusal="No.", finish_reason="stop")])
    assert [event["content_index"] for event in only(events, "content_part.done")] == [0, 1]
    content = events[-1]["response"]["output"][0]["content"]
    assert [part["type"] for part in content] == ["output_text", "refusal"]


def test_logprobs_are_told_with_their_text_and_whole_at_the_end() -> None:
    token = TokenLogprob("Hi", -0.5, (("Hi", -0.5), ("Ho", -1.5)))
    events = told([Step(0, "Hi", "stop", 1, logprobs=(token,))], with_logprobs=True)
    of_event = {
        "token": "Hi",
        "logprob": -0.5,
        "top_logprobs": [{"token": "Hi", "logprob": -0.5}, {"token": "Ho", "logprob": -1.5}],
    }
    assert only(events, "output_text.delta")[0]["logprobs"] == [of_event]
    assert only(events, "output_text.done")[0]["logprobs"] == [of_event]
    whole = events[-1]["response"]["output"][0]["content"][0]["logprobs"][0]
    assert whole["bytes"] == [72, 105]
    assert [other["bytes"] for other in whole["top_logprobs"]] == [[72, 105], [72, 111]]


def test_a_token_that_is_part_of_a_character_has_its_own_bytes() -> None:
    token = TokenLogprob("\ufffd", -0.5, data=b"\xc3")
    events = told([Step(0, "\u00fc", "stop", 1, logprobs=(token,))], with_logprobs=True)
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"][0]["bytes"] == [0xC3]


def test_of_a_part_of_a_character_whose_bytes_nobody_tells_there_are_none() -> None:
    token = TokenLogprob("\ufffd", -0.5, (("\ufffd", -0.5), ("u", -1.5)))
    events = told([Step(0, "\u00fc", "stop", 1, logprobs=(token,))], with_logprobs=True)
    whole = events[-1]["response"]["output"][0]["content"][0]["logprobs"][0]
    assert [whole["bytes"], *(other["bytes"] for other in whole["top_logprobs"])] == [[], [], [117]]


def test_logprobs_that_nobody_asked_for_stay_here() -> None:
    events = told([Step(0, "Hi", "stop", 1, logprobs=(TokenLogprob("Hi", -0.5),))])
    assert only(events, "output_text.delta")[0]["logprobs"] == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BackendFailed("broken"), "server_error"),
        (DeadlineExceeded("late"), "server_error"),
        (Overloaded("full"), "rate_limit_exceeded"),
    ],
    ids=["failed", "late", "overloaded"],
)
def test_a_failure_is_an_error_event_and_then_the_failed_response(error, code) -> None:
    body = ResponseBody(ASKED)
    begun = [*body.opening(), *body.written(Step(0, "Hel"))]
    failed, ended = body.failing(error)
    assert failed["sequence_number"] == len(begun)
    assert type(ANY_EVENT.validate_python(failed)).__name__ == "ResponseErrorEvent"
    assert (failed["message"], failed["code"]) == (error.message, error.code)
    assert failed["error"]["message"] == error.message, "at this key the SDK raises"
    response = Response.model_validate(ended["response"])
    assert ended["type"] == "response.failed"
    assert response.status == "failed"
    assert response.error is not None
    assert (response.error.code, response.error.message) == (code, error.message)
    assert ended["response"]["output"][0]["status"] == "incomplete"
    assert ended["response"]["output"][0]["content"][0]["text"] == "Hel"
