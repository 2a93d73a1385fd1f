import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from zooserve.errors import EngineRefused
from zooserve_ensembles.engines.__main__ import main
from zooserve_ensembles.engines.building import Options
from zooserve_ensembles.engines.command import build, models_with_plans
from zooserve_ensembles.engines.cuda import Cuda
from zooserve_ensembles.engines.encoder import read_encoder
from zooserve_ensembles.engines.here import this_machine
from zooserve_ensembles.engines.identity import Gpu
from zooserve_ensembles.engines.pipelines import feeds_of, tokenizer_buckets
from zooserve_ensembles.engines.tensorrt_builder import TensorRtBuilder

ZOO = Path(__file__).parents[3] / "model_repository" / "zoo"


def test_nothing_but_numpy_is_imported_in_nvidia_s_container() -> None:
    """Asked of a fresh interpreter: what the command line brings before it builds."""
    code = (
        "import json, sys; import zooserve_ensembles.engines.__main__; "
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert {"numpy", "zooserve", "zooserve_ensembles"} <= set(loaded)
    foreign = {"pydantic", "typer", "onnx", "onnxruntime", "tokenizers", "tritonclient", "google", "tensorrt", "yaml"}
    assert not foreign & set(loaded)


def test_without_a_gpu_each_command_says_so(capsys: pytest.CaptureFixture[str], repository: Path) -> None:
    golden = str(repository.parent / "golden")
    for arguments in (["build", "small_encoder", "--golden", golden], ["check"], ["use"]):
        if (Path("/proc/driver/nvidia")).exists():
            pytest.skip("there is a GPU here")
        assert main([*arguments, "--repository", str(repository)]) == 1
        assert "There is no GPU here: libcuda.so.1 cannot be loaded" in capsys.readouterr().err


def test_what_cannot_be_built_is_told_before_a_gpu_is_looked_for(
    capsys: pytest.CaptureFixture[str], repository: Path
) -> None:
    assert main(["build", "small_tokenizer", "--repository", str(repository)]) == 1
    assert "model.onnx is not there" in capsys.readouterr().err
    assert main(["build", "nobody", "--repository", str(repository)]) == 1
    assert "holds no model nobody" in capsys.readouterr().err


def test_a_missing_tensorrt_is_named_with_the_way_out() -> None:
    with pytest.raises(
        EngineRefused, match=r"Python module is not here \(No module named 'no_such_tensorrt'\).* docs/engines\.md"
    ):
        TensorRtBuilder("no_such_tensorrt")


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's wheel of bindings alone, of 10.14.1.48, on a machine with one H200."""
    module = ModuleType("tensorrt_bindings")
    module.__dict__.update(__version__="10.14.1.48", ILogger=object)
    monkeypatch.setitem(sys.modules, "tensorrt_bindings", module)
    monkeypatch.setattr(Cuda, "__init__", lambda self: None)
    monkeypatch.setattr(Cuda, "gpus", lambda self: (Gpu("NVIDIA H200", "9.0"),))


@pytest.mark.usefixtures("bindings")
def test_bindings_without_a_library_of_their_own_are_tensorrt_too() -> None:
    builder = TensorRtBuilder()
    assert (builder.module, builder.version) == ("tensorrt_bindings", "10.14.1.48")


@pytest.mark.usefixtures("bindings")
def test_bindings_of_another_version_than_triton_s_library_build_nothing(repository: Path) -> None:
    golden = repository.parent / "golden"
    with pytest.raises(
        EngineRefused, match=r"is 10\.14\.1\.48, and the library that Triton loads here is 10\.15\.0\.1"
    ):
        build(repository, "small_encoder", None, golden, Options(), None, {"TRT_VERSION": "10.15.0.1"}, print)


def test_a_machine_is_told_by_its_container_and_the_library_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cuda, "__init__", lambda self: None)
    monkeypatch.setattr(Cuda, "gpus", lambda self: (Gpu("NVIDIA H200", "9.0"),))
    machine = this_machine({"NVIDIA_TRITON_SERVER_VERSION": "26.07", "TRT_VERSION": "10.14.1.48+cuda13.0"})
    assert (machine.container, machine.tensorrt) == ("26.07", "10.14.1.48")
    assert this_machine({"ZOOSERVE_CONTAINER_TAG": "mine", "NVIDIA_TRITON_SERVER_VERSION": "26.07"}).container == "mine"
    bare = this_machine({}, "1.7.1.116")
    assert (bare.container, bare.tensorrt) == ("no-container", "1.7.1.116")


@pytest.mark.parametrize("model", models_with_plans(ZOO))
def test_the_zoo_s_plans_agree_with_their_configurations_and_tokenizers(model: str) -> None:
    """Without weights: buckets, profiles, tensors, and a tokenizer that pads to the same lengths."""
    encoder = read_encoder(ZOO, model)
    feeds = feeds_of(ZOO, model)
    assert encoder.vector == "sentence_embedding"
    assert feeds
    assert {tokenizer_buckets(feed, (16, 32, 64, 128, 256)) for feed in feeds} == {encoder.buckets}


def test_the_zoo_has_plans() -> None:
    assert "embed_encoder" in models_with_plans(ZOO)
