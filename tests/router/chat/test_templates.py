"""Chat templates render as their authors meant, and hostile ones are stopped."""

import json
from datetime import datetime

import pytest

from zooserve.errors import InputTooLong, TemplateFailed
from zooserve_router.chat.generation import Tool
from zooserve_router.chat.templates import ChatTemplate
from zooserve_router.chat.tools.families import described

MESSAGES = [{"role": "user", "content": "Hi"}]


def render(source: str, max_characters: int = 1000) -> str:
    template = ChatTemplate(source, now=lambda: datetime(2026, 3, 1))
    return template.render(MESSAGES, max_characters=max_characters)


WELL_MEANT = {
    "blocks leave no blank lines": (
        "{% for m in messages %}\n  {% if true %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}",
        "Hi\n",
    ),
    "the date": ("{{ strftime_now('%d %b %Y') }}", "01 Mar 2026"),
    "json keeps its alphabet": ("{{ {'a': 'é<'} | tojson }}", '{"a": "é<"}'),
    "json with an indent": ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
    "continue and break": (
        "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}"
        "{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
        "02",
    ),
    "generation marks": ("{% generation %}x{% endgeneration %}", "x"),
    "concatenation": ("{{ 'a' ~ 1 ~ none }}", "a1None"),
    "arithmetic": ("{{ 7 % 4 + 2 * 3 }}", "9"),
    "no tools": ("{{ tools is none }}{{ bos_token }}{{ add_generation_prompt }}", "TrueTrue"),
}


@pytest.mark.parametrize(("source", "text"), WELL_MEANT.values(), ids=WELL_MEANT.keys())
def test_templates_render_as_meant(source, text) -> None:
    assert render(source) == text


DOUBLING = "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s @ ns.s %}{% endfor %}"
HOSTILE = {
    "raises": "{{ raise_exception('roles must alternate') }}",
    "reaches for classes": "{{ ''.__class__.__mro__ }}",
    "changes the messages": "{{ messages.append(1) }}",
    "indexes past the end": "{{ messages[7].content }}",
    "divides by zero": "{{ 1 / 0 }}",
    "counts very far": "{% for i in range(10000000) %}{% endfor %}",
    "counts far many times": "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    "powers": "{{ 10 ** 10 ** 10 }}",
    "multiplies a text": "{{ 'a' * 100000000 }}",
    "doubles by plus": DOUBLING.replace("@", "+"),
    "doubles by tilde": DOUBLING.replace("@", "~"),
    "pads": "{{ 'a'.ljust(1000000000) }}",
    "formats": "{{ '%999999999d' % 3 }}",
    "recurses": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_templates_are_stopped(source) -> None:
    with pytest.raises(TemplateFailed):
        render(source)


def test_a_template_is_quoted_in_its_own_words() -> None:
    with pytest.raises(TemplateFailed, match="roles must alternate"):
        render(HOSTILE["raises"])


def test_output_is_bounded_while_it_is_made() -> None:
    with pytest.raises(InputTooLong):
        render("{% for i in range(90000) %}{{ 'a' * 1000 }}{% endfor %}")


def test_one_render_does_not_use_up_the_steps_of_the_next() -> None:
    template = ChatTemplate("{% for i in range(60000) %}{% endfor %}x")
    assert [template.render(MESSAGES, max_characters=9) for _ in range(3)] == ["x"] * 3


WEATHER = Tool("weather", "The weather of a place", {"type": "object", "properties": {"city": {"type": "string"}}})
ASK = {"role": "user", "content": "Is it raining?"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_123456", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call_123456", "content": "rain"}

# What published templates of each kind do, in fewer words: how they loop, what they ask of a message, what they raise.
CHATML = (
    "{%- if tools %}{{- '<|im_start|>system\n<tools>' }}{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}"
    "{%- endfor %}{{- '\n</tools><|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if message.role == 'tool' %}"
    "{{- '<|im_start|>user\n<tool_response>\n' ~ message.content ~ '\n</tool_response><|im_end|>\n' }}"
    "{%- elif message.tool_calls %}{{- '<|im_start|>assistant' }}{%- for call in message.tool_calls %}"
    "{%- if call.function is defined %}{%- set call = call.function %}{%- endif %}"
    '{{- \'\n<tool_call>\n{"name": "\' ~ call.name ~ \'", "arguments": \' }}{{- call.arguments | tojson }}'
    "{{- '}\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\n' }}"
    "{%- else %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}{%- endif %}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
LLAMA3 = (
    "{{- bos_token }}{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}"
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content']|trim %}"
    "{%- set messages = messages[1:] %}{%- else %}{%- set system = '' %}{%- endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\nToday is ' + date_string + '\n' }}"
    "{%- if tools is not none %}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}{%- endif %}"
    "{{- system + '<|eot_id|>' }}"
    "{%- for message in messages %}{%- if 'tool_calls' in message %}"
    "{%- if not message.tool_calls|length == 1 %}{{- raise_exception('one tool call at a time') }}{%- endif %}"
    "{%- set call = message.tool_calls[0].function %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}"
    "{{- '{\"name\": \"' + call.name + '\", \"parameters\": ' }}{{- call.arguments | tojson }}{{- '}<|eot_id|>' }}"
    "{%- elif message.role == 'tool' or message.role == 'ipython' %}"
    "{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' }}"
    "{%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}"
    "{%- else %}{{- message.content }}{%- endif %}{{- '<|eot_id|>' }}"
    "{%- else %}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim "
    "+ '<|eot_id|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
MISTRAL = (
    "{{- bos_token }}{%- set ns = namespace(index=0) %}{%- for message in messages %}"
    "{%- if not (message.role == 'tool' or message.get('tool_calls')) %}"
    "{%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}"
    "{{- raise_exception('roles must alternate user/assistant/user') }}{%- endif %}"
    "{%- set ns.index = ns.index + 1 %}{%- endif %}{%- endfor %}"
    "{%- for message in messages %}{%- if message['role'] == 'user' %}"
    "{%- if tools is not none and loop.last %}{{- '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' }}"
    "{%- endif %}{{- '[INST] ' + message['content'] + '[/INST]' }}"
    "{%- elif message.get('tool_calls') %}{{- '[TOOL_CALLS] [' }}{%- for call in message.tool_calls %}"
    "{{- call.function | tojson }}{%- if not loop.last %}{{- ', ' }}{%- endif %}{%- endfor %}{{- ']' + eos_token }}"
    "{%- elif message['role'] == 'tool' %}"
    "{{- '[TOOL_RESULTS] {\"content\": ' + message.content|string + '}[/TOOL_RESULTS]' }}"
    "{%- else %}{{- ' ' + message['content'] + eos_token }}{%- endif %}{%- endfor %}"
)
TOLD = json.dumps(described(WEATHER))
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
GOLDEN = {
    "ChatML": (
        CHATML,
        f"<|im_start|>system\n<tools>\n{TOLD}\n</tools><|im_end|>\n<|im_start|>user\nIs it raining?<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
        "<|im_end|>\n<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    ),
    "Llama 3": (
        LLAMA3,
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday is 01 Mar 2026\n"
        f"{json.dumps(described(WEATHER), indent=4)}\n\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nIs it raining?<|eot_id|>"
        '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "weather", "parameters": {"city": "Oslo"}}<|eot_id|>'
        '<|start_header_id|>ipython<|end_header_id|>\n\n"rain"<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "Mistral": (
        MISTRAL,
        '<s>[INST] Is it raining?[/INST][TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Oslo"}}]</s>'
        '[TOOL_RESULTS] {"content": rain}[/TOOL_RESULTS]',
    ),
}


@pytest.mark.parametrize(("source", "golden"), GOLDEN.values(), ids=GOLDEN.keys())
def test_functions_and_their_history_render_as_transformers_renders_them(source, golden) -> None:
    template = ChatTemplate(source, tokens=TOKENS, now=lambda: datetime(2026, 3, 1))
    assert template.render([ASK, CALL, RESULT], tools=[WEATHER], max_characters=5000) == golden


def test_a_template_for_tools_is_taken_where_there_are_some() -> None:
    template = ChatTemplate("plain", with_tools="{{ tools | length }} tool")
    assert template.render([ASK], max_characters=100) == "plain"
    assert template.render([ASK], tools=[WEATHER], max_characters=100) == "1 tool"


def test_arguments_that_are_no_json_reach_the_template_as_text() -> None:
    function = {"name": "f", "arguments": "{cut"}
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": function}]}
    template = ChatTemplate("{{ messages[0].tool_calls[0].function.arguments }}")
    assert template.render([message], max_characters=100) == "{cut"


def test_a_template_that_refuses_is_named() -> None:
    template = ChatTemplate(MISTRAL, name="leaf/model/1/chat_template.jinja")
    with pytest.raises(TemplateFailed, match=r"leaf/model/1/chat_template\.jinja .*roles must alternate") as refused:
        template.render([ASK, ASK], max_characters=100)
    assert refused.value.param == "messages"
    assert refused.value.code == "template_failed"
