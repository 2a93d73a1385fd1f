"""The documentation's page: what stands between its markers is drawn anew, the rest stays."""

from pathlib import Path

from zooserve_ensembles.drawing import with_drawings, zoo_configs
from zooserve_ensembles.drawing.page import BEGIN, END
from zooserve_ensembles.families import FAMILIES

ROOT = Path(__file__).parents[3]
CONFIGS = zoo_configs(ROOT / "model_repository" / "zoo")


def test_what_stands_between_the_markers_is_replaced() -> None:
    drawn = with_drawings(f"# Page\n{BEGIN}\nold\n{END}\nend\n", CONFIGS, FAMILIES[:1])
    assert drawn.startswith(f"# Page\n{BEGIN}\n\n### embed\n")
    assert drawn.endswith(f"{END}\nend\n")
    assert "old" not in drawn


def test_a_page_without_markers_stays_as_it_is() -> None:
    assert with_drawings("# Page\n", CONFIGS) == "# Page\n"


def test_the_committed_page_draws_every_pipeline() -> None:
    page = (ROOT / "docs" / "ensembles.md").read_text()
    assert with_drawings(page, CONFIGS) == page
    assert page.count("```mermaid") == sum(len(family.pipelines) for family in FAMILIES)
