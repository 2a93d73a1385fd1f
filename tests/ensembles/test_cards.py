"""Every public model has a card that says what a reader must know before he relies on it."""

import re
from pathlib import Path

import pytest

from zooserve.catalogue import Model, load_catalogue

ROOT = Path(__file__).parents[2]
CARDS = ROOT / "docs" / "models"
CATALOGUE = load_catalogue(ROOT / "zoo.yaml")
MODELS = sorted((*CATALOGUE.models, *CATALOGUE.disabled), key=lambda model: model.name)


def rows(card: str) -> dict[str, str]:
    return dict(re.findall(r"^\| ([\w ]+) \| (.+) \|$", card, re.MULTILINE))


def sections(card: str) -> dict[str, str]:
    parts = re.split(r"^## (.*)$", card, flags=re.MULTILINE)
    return {heading: text.strip() for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_card_tells_task_tensors_licence_source_quality_and_weaknesses(model: Model) -> None:
    card = (CARDS / f"{model.name}.md").read_text()
    assert card.startswith(f"# {model.name}: ")
    told = rows(card)
    assert {"task", "tensors", "licence", "source"} <= set(told)
    assert told["licence"].startswith(model.licence.split(",")[0])
    assert {"Quality", "Weaknesses"} <= {heading for heading, text in sections(card).items() if text}


def test_a_quality_is_a_figure_or_the_word_that_there_is_none() -> None:
    for model in MODELS:
        quality = sections((CARDS / f"{model.name}.md").read_text())["Quality"]
        assert re.search(r"\b0\.\d+", quality) or "not measured" in quality.lower(), model.name


def test_every_card_is_listed_and_every_listed_one_is_there() -> None:
    listed = re.findall(r"^\| \[(\w+)\]\(\1\.md\) \|", (CARDS / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [model.name for model in MODELS]
    assert sorted(path.stem for path in CARDS.glob("*.md")) == sorted([*listed, "README"])


def test_the_list_says_which_models_run_by_default() -> None:
    ends = dict(re.findall(r"^\| \[(\w+)\].* \| (yes|no) \|$", (CARDS / "README.md").read_text(), re.MULTILINE))
    assert ends == {model.name: "no" if model.optional else "yes" for model in MODELS}
