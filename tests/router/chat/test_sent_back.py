"""Answers that clients send back as history, with what their SDK put into them."""

from openai.types.chat import ParsedChatCompletionMessage

from zooserve_router.endpoints.messages import messages_in

CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "2"}


def test_a_parsed_answer_is_read_as_the_model_wrote_it() -> None:
    function = {**CALL["function"], "parsed_arguments": {"a": 1}}
    answer = ParsedChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "content": None,
            "parsed": None,
            "tool_calls": [{**CALL, "index": 0, "function": function}],
        }
    )
    history = messages_in([{"role": "user", "content": "1 + 1?"}, answer.model_dump(), RESULT])
    assert history[1] == {"role": "assistant", "content": None, "tool_calls": [CALL]}


def test_an_answer_of_a_form_is_read_as_its_text() -> None:
    answer = ParsedChatCompletionMessage[object].model_validate(
        {"role": "assistant", "content": '{"stars": 1}', "parsed": {"stars": 1}, "annotations": []}
    )
    history = messages_in([{"role": "user", "content": "Judge."}, answer.model_dump()])
    assert history[1] == {"role": "assistant", "content": '{"stars": 1}'}
