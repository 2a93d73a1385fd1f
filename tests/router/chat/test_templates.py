"""Chat templates render as their authors meant, and hostile ones are stopped."""

from datetime import datetime

import pytest

from zooserve.errors import InputTooLong, TemplateFailed
from zooserve_router.chat.templates import ChatTemplate

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
