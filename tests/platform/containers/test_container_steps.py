"""The container files' own steps, run without an engine: same lines, a folder in place of the image's root.

What is not run: the base images, `apt-get`, making users, and what Docker itself does.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[3]
OF_THE_IMAGE = re.compile(r"(?<![\w.:/-])/(opt|src|app|var|hub)(?=[/\s\"':]|$)")
ONLY_IN_CONTAINERS = re.compile(r"^(apt-get|rm -rf /var/lib/apt|groupadd|useradd|install -d)\b")
SPEED = {"UV_NO_CACHE": "false", "UV_LINK_MODE": "hardlink", "UV_COMPILE_BYTECODE": "false", "PIP_NO_CACHE_DIR": ""}
"""What makes an image smaller and quicker to start, and this test slow."""
NO_NETWORK = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9") | {"NO_PROXY": ""}
IMPORT_STAGES = """
import importlib.util, pkgutil, sys
import zooserve_ensembles.stages as stages
for module in pkgutil.iter_modules(stages.__path__, "zooserve_ensembles.stages."):
    importlib.import_module(module.name)
for number, model in enumerate(sys.argv[1:]):
    spec = importlib.util.spec_from_file_location(f"model_{number}", model)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert hasattr(module, "TritonPythonModel"), model
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@dataclass
class Builder:
    """Runs instructions below one folder; `ran` are the commands, as the container file has them."""

    root: Path
    context: frozenset[str]
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    ran: list[str] = field(default_factory=list)

    def here(self, text: str) -> str:
        """The text with the image's folders below this one's."""
        return OF_THE_IMAGE.sub(lambda found: f"{self.root}/{found[1]}", text)

    @property
    def folder(self) -> Path:
        """Where the instructions stand."""
        return Path(self.here(self.workdir)) if self.workdir != "/" else self.root

    def follow(self, stage) -> None:
        """Every instruction of a stage, in order."""
        for instruction in stage.instructions:
            step = getattr(self, f"_{instruction.word.lower()}", None)
            if step is not None:
                step(instruction.rest)

    def run(self, command: str, **variables: str) -> str:
        """Run a command line as the image would."""
        environment = {name: self.here(value) for name, value in self.environment.items()} | SPEED | variables
        environment = {name: os.path.expandvars(value) for name, value in environment.items()}
        inherited = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
        done = subprocess.run(
            ["sh", "-ec", self.here(command)],
            cwd=self.folder,
            env=inherited | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _env(self, rest: str) -> None:
        self.environment |= dict(pair.split("=", 1) for pair in rest.split())

    def _workdir(self, rest: str) -> None:
        self.workdir = rest
        self.folder.mkdir(parents=True, exist_ok=True)

    def _copy(self, rest: str) -> None:
        *sources, target = rest.split()
        if sources[0].startswith("--from="):
            assert sources[1:] == [target]  # an environment stays where it was made, and so it does here
            return
        for name in self.context:
            for source in sources:
                if name == source or name.startswith(f"{source}/"):
                    # Of a folder its content is copied, of a file the file.
                    inside = Path(name).name if name == source else Path(name).relative_to(source)
                    path = self.folder / target / inside
                    path.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(ROOT / name, path)

    def _run(self, rest: str) -> None:
        network = NO_NETWORK if rest.startswith("--network=none ") else {}
        steps = [step.strip() for step in rest.removeprefix("--network=none ").split("&&")]
        for step in steps:
            if not ONLY_IN_CONTAINERS.match(step):
                self.run(step, **network)
                self.ran.append(step)


@pytest.fixture
def builder(tmp_path: Path, context) -> Builder:
    """An empty image with a Python and nothing else."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("python", "python3"):
        (programs / name).write_text(f'#!/bin/sh\nexec {Path(sys.base_prefix) / "bin" / "python3"} "$@"\n')
        (programs / name).chmod(0o755)
    return Builder(tmp_path, context, {"PATH": f"{programs}:{os.environ['PATH']}"})


def shipped_alone(builder: Builder, final) -> None:
    """What the final stage starts with: none of the build's tools and sources."""
    for folder in ("opt/tools", "src"):
        shutil.rmtree(builder.root / folder)
    builder.workdir = "/"
    builder.follow(final)
    builder.environment["PATH"] = builder.environment["PATH"].replace("$PATH", os.environ["PATH"])


def everything_of(package: str) -> Iterator[str]:
    """The files of a package as git has them, by their names in a wheel."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", package], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            yield Path(name).relative_to(Path(package).parent).as_posix()


def test_the_routers_image_is_made_by_its_own_steps_and_its_commands_run_from_it(
    builder: Builder, read_container_file, tmp_path: Path
) -> None:
    build, final = read_container_file("router/Dockerfile").stages
    builder.follow(build)
    (wheel,) = (tmp_path / "src" / "dist").glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    packages = ("zooserve", "zooserve_cli", "zooserve_router", "zooserve_ensembles", "zooserve_observability")
    components = ("platform", "platform", "router", "ensembles", "observability")
    for component, package in zip(components, packages, strict=True):
        assert set(everything_of(f"{component}/{package}")) <= held
    assert "zooserve/_backends/onnxruntime/model.py" in held
    assert [name for name in held if name.startswith("zooserve_observability/_rules/")]

    shipped_alone(builder, final)
    assert len([run for run in builder.ran if "install" in run or "venv" in run]) == 5
    words = re.findall(r'"([^"]+)"', final.all("CMD")[0])
    assert "over the Tritons" in builder.run(" ".join([*words, "--help"]))
    copied = tmp_path / "model_repository"
    shutil.copytree(ROOT / "model_repository", copied, copy_function=os.link)
    mounted: Mapping[str, str] = {
        "ZOOSERVE_REPOSITORY": str(copied),
        "ZOOSERVE_CATALOGUE": str(ROOT / "zoo.yaml"),
        "ZOOSERVE_WEIGHTS_LOCK": str(ROOT / "weights.lock"),
    }
    told = builder.run("zooserve fetch --verify", **mounted, **NO_NETWORK)
    assert re.search(r"[1-9]\d* weight files in place, 0 of them new", told)
    where = builder.run("python -c 'import zooserve, zooserve_router; print(zooserve.__file__)'")
    assert where.startswith(f"{tmp_path}/opt/zooserve/")
    assert "zoo" in builder.run("zooserve triton --help")


def test_the_zoos_image_has_what_every_stage_imports_and_finds_it_without_pythonpath(
    builder: Builder, read_container_file, tmp_path: Path
) -> None:
    build, final = read_container_file("ensembles/Dockerfile").stages
    builder.follow(build)
    # NVIDIA's image has a Python of its own, into which the final stage puts a path; here it is one that has nothing.
    builder.run(f"python -m venv --without-pip {tmp_path}/image")
    builder.environment = {"PATH": f"{tmp_path}/image/bin:{os.environ['PATH']}"}
    shipped_alone(builder, final)
    assert builder.ran[-1].startswith('python3 -c "import PIL')
    triton = Path(sysconfig.get_path("purelib")) / "pytriton" / "tritonserver" / "backends" / "python"
    of_the_stub = tmp_path / "stub"
    of_the_stub.mkdir()
    shutil.copy(triton / "triton_python_backend_utils.py", of_the_stub)
    models = " ".join(str(model) for model in sorted((ROOT / "model_repository" / "zoo").glob("*/1/model.py")))
    (tmp_path / "stages.py").write_text(IMPORT_STAGES)
    loaded = builder.run(f"python3 {tmp_path}/stages.py {models}", PYTHONPATH=str(of_the_stub)).split()
    assert {"PIL", "numpy", "zooserve_ensembles"} <= set(loaded)
    found = builder.run("python3 -c 'import zooserve_ensembles as found; print(found.__file__)'").strip()
    assert found.startswith(f"{tmp_path}/opt/zooserve/lib/")
    for module in ("zooserve.health", "zooserve_ensembles.engines"):
        assert "usage" in builder.run(f"python3 -m {module} --help")


def test_the_leafs_image_has_our_wheel_alone(builder: Builder, read_container_file, tmp_path: Path) -> None:
    build, final = read_container_file("model_repository/trtllm/Dockerfile").stages
    builder.follow(build)
    builder.run(f"python -m venv --without-pip {tmp_path}/image")
    builder.environment = {"PATH": f"{tmp_path}/image/bin:{os.environ['PATH']}"}
    shipped_alone(builder, final)
    assert builder.ran[-1] == 'python3 -c "import zooserve"'
    assert "usage" in builder.run("python3 -m zooserve.health --help")
    held = {path.name for path in (tmp_path / "opt" / "zooserve" / "lib").iterdir()}
    assert {name for name in held if not name.startswith((".", "bin", "zooserve"))} == set()
