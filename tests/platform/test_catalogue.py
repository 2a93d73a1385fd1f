import difflib
from pathlib import Path

import pytest

from zooserve.catalogue import CatalogueError, ModelNotEnabled, UnknownModel, load_catalogue

ROOT = Path(__file__).parents[2]

EMBED = """\
models:
  - name: embed
    aliases: [minilm]
    task: embed
    runs_on: zoo
    triton: {interactive: embed, bulk: embed_bulk}
    limits: {max_tokens: 256}
    dimensions: 384
    licence: Apache-2.0
    source: somewhere
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "zoo.yaml"
        path.write_text(text)
        return path

    return write


def test_the_committed_catalogue_loads_and_serves_every_task() -> None:
    catalogue = load_catalogue(ROOT / "zoo.yaml")
    assert {model.task for model in catalogue} == {"embed", "rerank", "classify", "rag_query", "sparse", "chat"}


def test_a_model_is_found_by_name_alias_and_pinned_version(write) -> None:
    catalogue = load_catalogue(write(EMBED))
    assert {catalogue.resolve(name).name for name in ("embed", "minilm", "embed@1", "minilm@1")} == {"embed"}


def test_an_unknown_name_is_answered_with_the_nearest(write) -> None:
    with pytest.raises(UnknownModel) as caught:
        load_catalogue(write(EMBED)).resolve("embde")
    assert caught.value.nearest == ["embed"]


def test_a_version_that_is_not_served_names_the_one_that_is(write) -> None:
    with pytest.raises(UnknownModel) as caught:
        load_catalogue(write(EMBED)).resolve("minilm@7")
    assert caught.value.nearest == ["embed@1"]


def test_bulk_without_a_twin_is_served_by_the_interactive_model(write) -> None:
    model = load_catalogue(write(EMBED.replace(", bulk: embed_bulk", ""))).resolve("embed")
    assert model.triton_model("bulk") == "embed"


@pytest.mark.parametrize(
    ("old", "new", "line", "field"),
    [
        ("task: embed", "task: embedding", 4, "models.0.task"),
        ("    dimensions: 384", "    dimension: 384", 8, "models.0.dimension"),
        ("max_tokens: 256", "max_tokens: -1", 7, "models.0.limits.max_tokens"),
        ("    licence: Apache-2.0\n", "", 2, "models.0.licence"),
        ("    dimensions: 384\n", "", 2, "dimensions"),
        ("interactive: embed, ", "", 2, "interactive"),
        ("runs_on: zoo", "runs_on: moon", 5, "models.0.runs_on"),
    ],
)
def test_a_bad_field_is_told_with_line_and_name(write, old: str, new: str, line: int, field: str) -> None:
    path = write(EMBED.replace(old, new, 1))
    with pytest.raises(CatalogueError) as caught:
        load_catalogue(path)
    assert str(caught.value).startswith(f"{path}:{line}:")
    assert field in str(caught.value)


def test_a_name_taken_twice_is_refused(write) -> None:
    twice = EMBED + EMBED.removeprefix("models:\n").replace("name: embed", "name: other")
    with pytest.raises(CatalogueError, match="'minilm' is already taken by 'embed'"):
        load_catalogue(write(twice))


@pytest.mark.parametrize("text", ["", "models: [", "- 1", "models: {}", "models:\n  - 3"])
def test_what_is_no_catalogue_is_a_clear_error(write, text: str) -> None:
    with pytest.raises(CatalogueError, match=r"zoo\.yaml"):
        load_catalogue(write(text))


def test_a_missing_file_says_how_to_name_another(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="ZOOSERVE_CATALOGUE"):
        load_catalogue(tmp_path / "absent.yaml")


def test_of_a_name_of_megabytes_only_the_beginning_is_compared(write, monkeypatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(difflib, "get_close_matches", lambda name, *rest, **options: compared.append(name) or [])
    with pytest.raises(UnknownModel):
        load_catalogue(write(EMBED)).resolve("embed" + "x" * 8_000_000)
    assert [len(name) for name in compared] == [100]


def test_broken_yaml_names_its_line(write) -> None:
    path = write("models:\n  - name: embed\n    task: [\n")
    with pytest.raises(CatalogueError) as caught:
        load_catalogue(path)
    assert str(caught.value).startswith(f"{path}:4: not valid YAML: ")


def test_a_file_that_is_not_utf_8_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "zoo.yaml"
    path.write_bytes(b"models: \xe9")
    with pytest.raises(CatalogueError, match="not UTF-8"):
        load_catalogue(path)


OPTIONAL = EMBED + EMBED.removeprefix("models:\n").replace("name: embed", "name: vision\n    optional: true").replace(
    "[minilm]", "[eyes]"
)


@pytest.mark.parametrize(
    ("wanted", "enabled"),
    [
        ("default", ["embed"]),
        ("all", ["embed", "vision"]),
        ("vision", ["vision"]),
        ("eyes", ["vision"]),
        ("default,vision", ["embed", "vision"]),
        (" vision , embed,", ["embed", "vision"]),
    ],
)
def test_the_settings_say_which_models_are_enabled(write, wanted: str, enabled: list[str]) -> None:
    catalogue = load_catalogue(write(OPTIONAL)).enabling(wanted)
    assert [model.name for model in catalogue] == enabled
    assert {model.name for model in catalogue.disabled} == {"embed", "vision"} - set(enabled)


def test_a_model_that_is_not_enabled_is_told_apart_from_one_that_does_not_exist(write) -> None:
    catalogue = load_catalogue(write(OPTIONAL)).enabling("default")
    with pytest.raises(ModelNotEnabled) as caught:
        catalogue.resolve("eyes")
    assert caught.value.model.name == "vision"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [("vison", "Did you mean vision?"), ("zzzz", "It has embed, vision."), ("", "names no model"), (",", "no model")],
)
def test_a_selection_that_names_what_is_not_there_says_what_is(write, wanted: str, said: str) -> None:
    with pytest.raises(CatalogueError) as caught:
        load_catalogue(write(OPTIONAL)).enabling(wanted)
    assert "ZOOSERVE_MODELS" in str(caught.value)
    assert said in str(caught.value)


def test_prompts_are_both_or_none(write) -> None:
    both = EMBED.replace("    dimensions", '    prompts: {query: "q: ", passage: "p: "}\n    dimensions')
    prompts = load_catalogue(write(both)).resolve("embed").prompts
    assert prompts is not None
    assert (prompts.query, prompts.passage) == ("q: ", "p: ")
    with pytest.raises(CatalogueError, match=r"prompts\.passage"):
        load_catalogue(write(both.replace(', passage: "p: "', "")))


CHAT = """\
models:
  - name: chat
    aliases: [llama, "llama3:8b"]
    task: chat
    runs_on: leaf
    triton: {interactive: tensorrt_llm}
    tokenizer: tokenizer.json
    chat_template: chat_template.jinja
    backend:
      kind: llmapi
      lora:
        support: {id: 1, path: /adapters/support}
        legal: {id: 2, path: /adapters/legal, source: nemo}
    limits: {max_tokens: 2048}
    kv_budget_tokens: 32768
    licence: Apache-2.0
    source: somewhere
"""


@pytest.mark.parametrize("name", ["chat:support", "llama:support", "llama3:8b:support", "chat:support@1"])
def test_an_adapter_is_chosen_by_the_models_name(write, name: str) -> None:
    model = load_catalogue(write(CHAT)).resolve(name)
    assert (model.name, model.adapter, model.public_name) == ("chat", "support", "chat:support")


def test_a_name_without_an_adapter_is_the_bare_model_even_with_a_colon_in_an_alias(write) -> None:
    catalogue = load_catalogue(write(CHAT))
    assert {catalogue.resolve(name).adapter for name in ("chat", "llama", "llama3:8b")} == {None}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("chat:suport", ["chat:support"]), ("chat:", ["chat"]), ("chat:support@7", ["chat:support@1"])],
)
def test_an_adapter_that_is_not_declared_is_no_model(write, name: str, nearest: list[str]) -> None:
    with pytest.raises(UnknownModel) as caught:
        load_catalogue(write(CHAT)).resolve(name)
    assert caught.value.nearest == nearest


def test_only_chat_models_have_adapters(write) -> None:
    with pytest.raises(UnknownModel) as caught:
        load_catalogue(write(EMBED)).resolve("embed:support")
    assert caught.value.nearest == ["embed"]


def test_an_adapter_of_a_model_that_is_not_enabled_is_told_apart(write) -> None:
    catalogue = load_catalogue(write(CHAT + EMBED.removeprefix("models:\n"))).enabling("embed")
    with pytest.raises(ModelNotEnabled):
        catalogue.resolve("chat:support")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("id: 2", "id: 1", "the same `id`"),
        ("id: 2", "id: 0", "greater than 0"),
        ("/adapters/legal", "adapters/legal", "pattern"),
        ("source: nemo", "source: gguf", "'hf' or 'nemo'"),
        ("support:", "Support Desk:", "pattern"),
        ("kind: llmapi", "kind: tensorrt_llm", "has no `lora`"),
        ("task: chat\n", "task: chat\n    adapter: support\n", "chosen by a request"),
    ],
)
def test_a_bad_adapter_fails_at_load(write, old: str, new: str, said: str) -> None:
    with pytest.raises(CatalogueError, match=said):
        load_catalogue(write(CHAT.replace(old, new)))


@pytest.mark.parametrize("name", ["Authorization", "cookie", "Host", "Transfer-Encoding", "X-API-Key"])
def test_no_catalogue_passes_a_callers_credentials_on(write, name: str) -> None:
    with pytest.raises(CatalogueError, match=f"`forward_headers` names {name}"):
        load_catalogue(write(CHAT.replace("kind: llmapi", f"forward_headers: [X-Tenant, {name}]")))


ENGINE = CHAT.replace("runs_on: leaf", "runs_on: engine").replace("llmapi", "openai").partition("      lora:")[0]
ENGINE += CHAT[CHAT.index("    limits:") :]


def test_what_the_platforms_own_engine_is_need_not_be_said(write) -> None:
    bare = ENGINE.replace("    backend:\n      kind: openai\n", "")
    for text in (ENGINE, bare, ENGINE.replace("kind: openai", "server: llama.cpp\n      kind: openai")):
        assert load_catalogue(write(text)).resolve("chat").chat_backend.server == "llama.cpp"
    with pytest.raises(CatalogueError, match=r"is llama\.cpp's server"):
        load_catalogue(write(ENGINE.replace("kind: openai", "server: vllm\n      kind: openai")))


@pytest.mark.parametrize("feature", ["images", "tools", "tool_choice"])
def test_a_rendered_prompt_carries_no_features_of_messages(write, feature: str) -> None:
    with pytest.raises(CatalogueError, match=f"`can` has no {feature}"):
        load_catalogue(write(CHAT.replace("kind: llmapi", f"kind: llmapi\n      can: [json_schema, {feature}]")))


def test_a_header_to_pass_on_is_one(write) -> None:
    with pytest.raises(CatalogueError, match="forward_headers"):
        load_catalogue(write(CHAT.replace("kind: llmapi", 'forward_headers: ["X Tenant"]')))
