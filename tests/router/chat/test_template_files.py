"""A chat template is found where checkpoints carry it, and the catalogue's own choice wins."""

import json
from pathlib import Path
from typing import Any

import pytest

from zooserve.catalogue import Backend, Limits, Model
from zooserve.errors import MissingPart
from zooserve_router.chat.generation import Tool
from zooserve_router.chat.template_files import read_template

ASK = [{"role": "user", "content": "Hi"}]


def model(**fields: Any) -> Model:
    values = {
        "name": "chat",
        "task": "chat",
        "runs_on": "leaf",
        "triton": {"interactive": "tensorrt_llm"},
        "tokenizer": "m/tokenizer.json",
        "limits": Limits(max_tokens=400),
        "kv_budget_tokens": 1000,
        "licence": "none",
        "source": "a test",
    }
    return Model(**{**values, **fields})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    return tmp_path


def put(files: Path, name: str, content: object) -> None:
    path = files / "m" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def rendered(files: Path, tools: tuple[Tool, ...] = (), **fields: Any) -> str:
    template = read_template(model(**fields), files)
    assert template is not None
    return template.render(ASK, tools=tools, max_characters=100)


def test_a_file_of_its_own_comes_before_the_tokenizers_config(files) -> None:
    put(files, "tokenizer_config.json", {"chat_template": "from the config"})
    assert rendered(files) == "from the config"
    put(files, "chat_template.json", {"chat_template": "from its json"})
    assert rendered(files) == "from its json"
    put(files, "chat_template.jinja", "from its jinja")
    assert rendered(files) == "from its jinja"


def test_the_catalogues_choice_wins(files) -> None:
    put(files, "chat_template.jinja", "the checkpoint's")
    put(files, "other.jinja", "the operator's")
    assert rendered(files, chat_template="m/other.jinja") == "the operator's"


def test_named_templates_are_a_default_and_one_for_tools(files) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    put(files, "tokenizer_config.json", {"chat_template": named})
    assert rendered(files) == "plain"
    assert rendered(files, tools=(Tool("f"),)) == "tools"


def test_additional_templates_may_be_files(files) -> None:
    put(files, "chat_template.jinja", "plain")
    put(files, "additional_chat_templates/tool_use.jinja", "tools")
    assert rendered(files, tools=(Tool("f"),)) == "tools"


def test_special_tokens_come_from_the_tokenizers_config(files) -> None:
    put(files, "chat_template.jinja", "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}")
    assert rendered(files) == "False"
    put(files, "tokenizer_config.json", {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None})
    assert rendered(files) == "<s></s>False"


def test_an_upstream_has_its_own_unless_the_catalogue_names_one(files) -> None:
    put(files, "chat_template.jinja", "x")
    upstream: dict[str, Any] = {
        "runs_on": "upstream",
        "triton": {},
        "backend": Backend(kind="openai", url="http://there/v1"),
    }
    assert read_template(model(**upstream), files) is None
    assert rendered(files, **upstream, chat_template="m/chat_template.jinja") == "x"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("chat_template.jinja", "a\n{% if %}", r"m/chat_template\.jinja:2: .*cannot be compiled"),
        ("chat_template.json", "{", r"m/chat_template\.json cannot be read"),
        ("chat_template.json", {"other": 1}, "has no `chat_template`"),
        ("chat_template.json", [1], "not a JSON object"),
        (
            "tokenizer_config.json",
            {"chat_template": [{"name": "rag", "template": ""}]},
            "no chat template named 'default'",
        ),
        ("tokenizer_config.json", {"bos_token": "<s>"}, "none of .* is beside m/tokenizer.json"),
    ],
)
def test_what_is_no_template_is_told_with_its_file(files, name, content, told) -> None:
    put(files, name, content)
    with pytest.raises(MissingPart, match=told):
        read_template(model(), files)


def test_a_file_that_is_not_there_is_named(files) -> None:
    with pytest.raises(MissingPart, match=r"m/gone\.jinja"):
        read_template(model(chat_template="m/gone.jinja"), files)
