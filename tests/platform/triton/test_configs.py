"""Configurations as `--model-config-name` chooses them."""

from pathlib import Path

from zooserve.triton.configs import read_configs


def put(root: Path, model: str, rows: int, variant: str = "") -> None:
    file = root / model / (f"configs/{variant}.pbtxt" if variant else "config.pbtxt")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'name: "{model}" max_batch_size: {rows}')


def test_a_variant_takes_the_place_of_the_default_where_a_model_has_it(tmp_path: Path) -> None:
    put(tmp_path, "one", 1)
    put(tmp_path, "one", 8, "gpu")
    put(tmp_path, "two", 2)
    sizes = {name: config.max_batch_size for name, config in read_configs(tmp_path, "gpu").items()}
    assert sizes == {"one": 8, "two": 2}
    assert read_configs(tmp_path)["one"].max_batch_size == 1


def test_a_variant_that_cannot_be_read_is_not_made_up_for(tmp_path: Path) -> None:
    put(tmp_path, "one", 1)
    put(tmp_path, "one", 8, "gpu")
    (tmp_path / "one/configs/gpu.pbtxt").write_text("max_batchsize: 8")
    assert read_configs(tmp_path, "gpu") == {}
