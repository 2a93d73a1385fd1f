"""`zooserve template` prints the prompt and nothing else, or says what is wrong with what it was given."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from typer.testing import CliRunner

from zooserve_cli.main import app

CATALOGUE = """
models:
  - {name: chat, task: chat, runs_on: leaf, triton: {interactive: llm}, tokenizer: m/tokenizer.json,
     default_system_prompt: Be kind., limits: {max_tokens: 400}, kv_budget_tokens: 1000, licence: none, source: a test}
  - {name: held, task: chat, runs_on: leaf, triton: {interactive: llm}, tokenizer: m/tokenizer.json,
     backend: {can: [json_schema]}, limits: {max_tokens: 400}, kv_budget_tokens: 1000, licence: none, source: a test}
  - {name: cloud, task: chat, runs_on: upstream, backend: {kind: openai, url: "http://there/v1"},
     limits: {max_tokens: 400}, licence: none, source: a test}
  - {name: embed, task: embed, runs_on: zoo, triton: {interactive: embed}, dimensions: 3,
     limits: {max_tokens: 400}, licence: none, source: a test}
"""
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}<assistant>"
)
HI = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "zoo.yaml").write_text(CATALOGUE)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "chat_template.jinja").write_text(TEMPLATE)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(tmp_path / "m" / "tokenizer.json"))
    monkeypatch.setenv("ZOOSERVE_CATALOGUE", str(tmp_path / "zoo.yaml"))
    monkeypatch.setenv("ZOOSERVE_REPOSITORY", str(tmp_path))
    return tmp_path


def put(folder: Path, name: str, content: object) -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def run(*arguments: str, stdin: str | None = None) -> tuple[str, str]:
    """Stdout and stderr, or the text of the error that the command ends with."""
    done = CliRunner().invoke(app, ["template", *arguments], input=stdin)
    return done.stdout, done.stderr or str(done.exception or "")


def test_the_prompt_is_printed_to_the_letter(folder) -> None:
    assert run("chat", "--messages", put(folder, "hi.json", HI)) == ("<system>Be kind.\n<user>Hi\n<assistant>", "")


def test_messages_may_come_from_stdin_and_tokens_are_told_apart(folder) -> None:
    prompt, told = run("chat", "--messages", "-", "--tokens", stdin=json.dumps(HI))
    assert prompt == "<system>Be kind.\n<user>Hi\n<assistant>"
    assert told == f"{len(prompt)} tokens\n"


def test_a_model_is_named_as_in_a_request(folder) -> None:
    hi = put(folder, "hi.json", HI)
    assert run("chat@1", "--messages", hi) == run("chat", "--messages", hi)
    assert "no model 'chat@2'" in run("chat@2", "--messages", hi)[1]


def test_tools_are_told_as_the_router_tells_them(folder) -> None:
    prompt, told = run("held", "--messages", put(folder, "hi.json", HI), "--tools", put(folder, "tools.json", TOOLS))
    assert prompt.startswith("<system>You can call these functions:\n<tools>\n")
    assert told == ""


def test_tools_that_the_router_would_refuse_are_shown_to_the_template_and_that_is_said(folder) -> None:
    prompt, told = run("chat", "--messages", put(folder, "hi.json", HI), "--tools", put(folder, "tools.json", TOOLS))
    assert f"{json.dumps(TOOLS)}<assistant>" in prompt
    assert "refused by chat" in told


@pytest.mark.parametrize(
    ("model", "content", "named"),
    [
        ("chat", "[", "is not JSON"),
        ("chat", "{}", "must be an array"),
        ("chat", "[]", "`messages` is empty"),
        ("chat", '[{"role": "king", "content": "Hi"}]', "messages[0].role"),
        ("cloud", json.dumps(HI), "chat template of its own"),
        ("embed", json.dumps(HI), "task embed"),
        ("nobody", json.dumps(HI), "no model 'nobody'. Its chat models: chat, held, cloud."),
    ],
)
def test_what_cannot_be_rendered_is_told(folder, model, content, named) -> None:
    prompt, told = run(model, "--messages", put(folder, "messages.json", content))
    assert prompt == ""
    assert named in told


def test_a_template_that_raises_is_named_with_its_words(folder) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *HI,
        {"role": "assistant", "content": "Well.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]
    _, told = run("chat", "--messages", put(folder, "messages.json", messages))
    assert "m/chat_template.jinja refused these messages: no tools here" in told


def test_files_that_are_not_there_are_named(folder) -> None:
    assert "gone.json cannot be read" in run("chat", "--messages", "gone.json")[1]
    (folder / "m" / "tokenizer.json").unlink()
    assert "run `zooserve fetch`" in run("chat", "--messages", put(folder, "hi.json", HI))[1]


def test_a_template_that_is_not_there_is_to_be_fetched(folder) -> None:
    named = CATALOGUE.replace(
        "tokenizer: m/tokenizer.json", "tokenizer: m/tokenizer.json, chat_template: m/gone.jinja", 1
    )
    put(folder, "zoo.yaml", named)
    told = run("chat", "--messages", put(folder, "hi.json", HI))[1]
    assert "m/gone.jinja is not there: run `zooserve fetch`" in told
