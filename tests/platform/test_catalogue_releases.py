"""What the catalogue says of releases and of embedding spaces, and what it refuses."""

from pathlib import Path

import pytest

from zooserve.catalogue import Canary, CatalogueError, Shadow, load_catalogue

CLASSIFIERS = """\
models:
  - name: mood
    aliases: [feeling]
    task: classify
    runs_on: zoo
    triton: {interactive: mood}
    labels: [glad, sad]
    limits: {max_tokens: 100, max_items: 16}
    releases: {canary: {model: mood_next, share: 0.25}}
    licence: MIT
    source: somewhere
  - name: mood_next
    aliases: [soon]
    task: classify
    runs_on: zoo
    triton: {interactive: mood_next}
    version: 2
    labels: [glad, sad]
    limits: {max_tokens: 100, max_items: 16}
    licence: MIT
    source: somewhere
"""
VECTORS = """\
models:
  - name: embed
    task: embed
    runs_on: zoo
    triton: {interactive: embed}
    encoder: {interactive: embed_encoder}
    long_text: {triton: {interactive: embed_long}, max_tokens: 2000}
    dimensions: 384
    limits: {max_tokens: 256}
    releases: {canary: {model: faster, share: 0.5}}
    licence: MIT
    source: somewhere
  - name: faster
    task: embed
    runs_on: zoo
    triton: {interactive: faster}
    encoder: {interactive: faster_encoder}
    long_text: {triton: {interactive: faster_long}, max_tokens: 2000}
    dimensions: 384
    space: embed
    limits: {max_tokens: 256}
    licence: MIT
    source: somewhere
"""
CHATS = """\
models:
  - name: talk
    task: chat
    runs_on: upstream
    backend: {kind: openai, url: "http://one.example/v1"}
    limits: {max_tokens: 2048, max_completion_tokens: 512}
    releases: {canary: {model: talk_next, share: 0.1, by: caller}}
    licence: MIT
    source: somewhere
  - name: talk_next
    task: chat
    runs_on: upstream
    backend: {kind: openai, url: "http://two.example/v1"}
    limits: {max_tokens: 2048, max_completion_tokens: 512}
    licence: MIT
    source: somewhere
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "zoo.yaml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def refusal(write):
    """What loading the text fails with, without the file's name."""

    def refusal(text: str) -> str:
        path = write(text)
        with pytest.raises(CatalogueError) as caught:
            load_catalogue(path)
        return str(caught.value).removeprefix(f"{path}:")

    return refusal


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        head, _, tail = text.rpartition(old)
        text = head + new + tail
    return text


def test_a_model_declares_who_shares_in_its_requests(write) -> None:
    declared = load_catalogue(write(CLASSIFIERS)).resolve("feeling").releases
    assert declared is not None
    assert declared.canary == Canary(model="mood_next", share=0.25, by="request")
    assert declared.shadow is None


def test_a_canary_may_be_had_by_caller_and_beside_a_shadow(write) -> None:
    third = CLASSIFIERS[CLASSIFIERS.rindex("  - name") :].replace("mood_next", "mood_then").replace("soon", "then")
    both = "{canary: {model: mood_next, share: 1, by: caller}, shadow: {model: mood_then, share: 0.5}}"
    text = CLASSIFIERS.replace("{canary: {model: mood_next, share: 0.25}}", both) + third
    declared = load_catalogue(write(text)).resolve("mood").releases
    assert declared is not None
    assert declared.canary == Canary(model="mood_next", share=1, by="caller")
    assert declared.shadow == Shadow(model="mood_then", share=0.5)


def test_who_pins_a_version_gets_that_one_alone(write) -> None:
    catalogue = load_catalogue(write(CLASSIFIERS))
    assert catalogue.resolve("mood@1").releases is None
    assert catalogue.resolve("mood@1").name == "mood"
    assert catalogue.resolve("soon").releases is None


def test_a_canary_that_answers_is_called_what_the_caller_asked_for(write) -> None:
    catalogue = load_catalogue(write(CLASSIFIERS))
    answering = catalogue.resolve("mood_next").answering_for(catalogue.resolve("mood"))
    assert (answering.name, answering.version, answering.public_name) == ("mood_next", 2, "mood")


def test_an_adapter_is_asked_of_the_serving_model_alone(write) -> None:
    lora = 'backend: {kind: vllm, leaves: ["leaf:8001"], lora: {law: {id: 1, path: /law}}}'
    text = CHATS.replace('backend: {kind: openai, url: "http://one.example/v1"}', lora)
    text = text.replace('backend: {kind: openai, url: "http://two.example/v1"}', lora)
    text = text.replace("runs_on: upstream", "runs_on: leaf\n    triton: {interactive: v}\n    tokenizer: t")
    text = text.replace("max_completion_tokens: 512}", "max_completion_tokens: 512}\n    kv_budget_tokens: 4096")
    catalogue = load_catalogue(write(text))
    assert catalogue.resolve("talk").releases is not None
    assert catalogue.resolve("talk:law").releases is None


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ("mood_next, share: 0.25", "mood_nxt, share: 0.25", "9: models.0.releases.canary.model", "mean mood_next"),
        ("mood_next, share: 0.25", "soon, share: 0.25", "9: models.0.releases.canary.model", "an alias of mood_next"),
        ("mood_next, share: 0.25", "mood, share: 0.25", "9: models.0.releases.canary.model", "this model itself"),
        ("0.25", "0", "9: models.0.releases.canary.share", "greater than 0"),
        ("0.25", "-0.5", "9: models.0.releases.canary.share", "greater than 0"),
        ("0.25", "1.01", "9: models.0.releases.canary.share", "less than or equal to 1"),
        ("0.25", ".nan", "9: models.0.releases.canary.share", "finite"),
        ("0.25", "true", "9: models.0.releases.canary.share", "number"),
        ("0.25", "10%", "9: models.0.releases.canary.share", "number"),
        ("share: 0.25", "share: 0.25, by: moon", "9: models.0.releases.canary.by", "'request' or 'caller'"),
        ("share: 0.25", "shares: 0.25", "9: models.0.releases.canary.share", "required"),
        ("{canary: {model: mood_next, share: 0.25}}", "{}", "9: models.0.releases", "name a `canary` or a `shadow`"),
        ("[glad, sad]", "[sad, glad]", "9: models.0.releases.canary.model", "has other labels"),
        ("[glad, sad]", "[glad, sad]\n    exclusive: true", "9: models.0.releases.canary.model", "has other labels"),
        ("max_items: 16", "max_items: 15", "9: models.0.releases.canary.model", "`limits.max_items`"),
        ("max_tokens: 100", "max_tokens: 99", "9: models.0.releases.canary.model", "`limits.max_tokens`"),
        ("max_items: 16}", "max_items: 16, max_completion_tokens: 9}", "9: models.0", "max_completion_tokens"),
        ("labels: [glad", "modality: image\n    labels: [glad", "9: models.0.releases.canary.model", "modality image"),
        (
            "version: 2",
            "releases: {shadow: {model: mood, share: 1}}",
            "9: models.0.releases.canary.model",
            "`releases` of its own",
        ),
        ("    version: 2", "    release_of: mood", "12: models.1", "chosen by the router"),
        ("    version: 2", "    space: mood", "17: models.1.space", "makes no vectors"),
    ],
)  # fmt: skip
def test_a_release_that_does_not_fit_is_refused_by_line_and_field(refusal, old, new, place, said) -> None:
    told = refusal(changed(CLASSIFIERS, (old, new)))
    assert told.startswith(place), told
    assert said in told


def test_one_release_is_not_both_canary_and_shadow(refusal) -> None:
    both = "share: 0.25}, shadow: {model: mood_next, share: 1}}"
    assert "mood_next is both canary and shadow" in refusal(changed(CLASSIFIERS, ("share: 0.25}}", both)))


def test_a_canary_of_another_task_is_refused(refusal) -> None:
    changes = (("task: classify", "task: rerank"), ("    labels: [glad, sad]\n", ""))
    assert "mood_next is a model of task rerank, not classify" in refusal(changed(CLASSIFIERS, *changes))


def test_queries_are_split_only_within_an_embedding_space(write, refusal) -> None:
    load_catalogue(write(VECTORS))
    told = refusal(VECTORS.replace("    space: embed\n", ""))
    assert told.startswith("10: models.0.releases.canary.model: faster is an embedding space of its own")
    assert "`shadow`" in told
    load_catalogue(write(VECTORS.replace("    space: embed\n", "").replace("canary:", "shadow:")))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    encoder: {interactive: faster_encoder}\n", "", "no `encoder`"),
        ("    long_text: {triton: {interactive: faster_long}, max_tokens: 2000}\n", "", "no `long_text`"),
        ("max_tokens: 2000", "max_tokens: 1999", "no `long_text`"),
        ("space: embed", "space: embd", "no entry 'embd'. Did you mean embed?"),
        ("space: embed", "space: faster", "leave `space` out"),
        ("dimensions: 384", "dimensions: 383", "embed has 384 dimensions and faster 383"),
        ("space: embed", 'space: embed\n    prompts: {query: "q ", passage: "p "}', "other `prompts`"),
    ],
)
def test_what_cannot_stand_for_an_embedding_model_is_refused(refusal, old: str, new: str, said: str) -> None:
    assert said in refusal(changed(VECTORS, (old, new)))


def test_sparse_and_dense_vectors_share_no_space(refusal) -> None:
    text = changed(VECTORS, ("task: embed", "task: sparse")).replace("releases: {canary", "# {canary")
    text = changed(text, ("    long_text: {triton: {interactive: faster_long}, max_tokens: 2000}\n", ""))
    assert "vectors are of another kind" in refusal(text)


def test_a_space_is_named_by_the_model_that_spans_it(refusal) -> None:
    third = VECTORS[VECTORS.rindex("  - name") :].replace("faster", "fastest").replace("space: embed", "space: faster")
    assert "faster is itself in the space of embed" in refusal(VECTORS + third)


def test_a_chat_may_have_a_canary_of_all_its_features_and_no_shadow(write, refusal) -> None:
    load_catalogue(write(CHATS))
    assert "lacks seed" in refusal(changed(CHATS, ('two.example/v1"', 'two.example/v1", cannot: [seed]')))
    shadow = CHATS.replace(
        "{canary: {model: talk_next, share: 0.1, by: caller}}", "{shadow: {model: talk_next, share: 1}}"
    )
    assert "generate every answer a second time" in refusal(shadow)


@pytest.mark.parametrize("bound", ["max_completion_tokens: 511", "max_tokens: 2047"])
def test_a_canary_of_a_chat_answers_at_as_great_a_length(refusal, bound: str) -> None:
    name = bound.partition(":")[0]
    whole = {"max_completion_tokens": "max_completion_tokens: 512", "max_tokens": "max_tokens: 2048"}[name]
    assert f"`limits.{name}`" in refusal(changed(CHATS, (whole, bound)))


def test_labels_that_come_with_the_weights_are_compared_once_they_are_read(write, tmp_path: Path) -> None:
    text = changed(
        CLASSIFIERS, ("labels: [glad, sad]", "labels_file: b.txt"), ("labels: [glad, sad]", "labels_file: a.txt")
    )
    catalogue = load_catalogue(write(text))
    (tmp_path / "a.txt").write_text("glad\nsad\n")
    assert catalogue.labelled(tmp_path).resolve("mood").labels == (
        "glad",
        "sad",
    )  # the canary has none, and is not ready
    (tmp_path / "b.txt").write_text("sad\nglad\n")
    with pytest.raises(CatalogueError, match=r"mood_next, the canary of mood, has other labels in its b\.txt: "):
        catalogue.labelled(tmp_path)
