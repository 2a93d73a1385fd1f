"""Where the demo keeps its collection, and what it says where that cannot be used."""

from pathlib import Path

import pytest

from zooserve import Zoo
from zooserve.errors import SpaceMismatch, StoreUnavailable
from zooserve.settings import Settings
from zooserve_cli.demo import _collection, _options_named


def test_the_folder_is_the_one_named_or_the_platforms_own(tmp_path) -> None:
    settings = Settings(state_dir=tmp_path)
    with Zoo("http://zoo") as zoo:
        assert _collection(zoo, settings, None, None, "KEY").where == str(tmp_path / "demo")
        assert _collection(zoo, settings, Path(tmp_path / "mine"), None, "KEY").where == str(tmp_path / "mine")
        assert _collection(zoo, settings, None, "http://qdrant:6333", "KEY").where == "http://qdrant:6333"


@pytest.mark.parametrize(("kind", "option"), [(SpaceMismatch, "--rebuild"), (StoreUnavailable, "--store")])
def test_a_refusal_of_the_sdk_names_the_option_that_helps(kind, option) -> None:
    with pytest.raises(kind, match=rf"no way.*{option}"), _options_named():
        raise kind("no way.")
