"""What the container files say, held against the tree, the locks and .env.example. No engine is needed."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HADOLINT = Path(sys.executable).with_name("hadolint")
CONTEXT_BYTES = 6 * 2**20
INSTALLED = re.compile(r"uv pip install|/pip install")


def test_every_container_file_of_the_tree_is_one_of_those_tested(read_container_file) -> None:
    components = ("platform", "router", "ensembles", "observability", "model_repository")
    found = {path.relative_to(ROOT).as_posix() for name in components for path in (ROOT / name).rglob("Dockerfile*")}
    assert found == {"router/Dockerfile", "ensembles/Dockerfile", "model_repository/trtllm/Dockerfile"}


def test_hadolint_has_nothing_to_say(container_file) -> None:
    done = subprocess.run([HADOLINT, container_file.path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_is_listening(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM quay.io/somebody/python\nRUN pip install requests\nUSER root\n")
    config = ROOT / ".hadolint.yaml"
    done = subprocess.run(
        [HADOLINT, "--config", config, tmp_path / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert {"DL3002", "DL3006", "DL3013", "DL3026"} <= set(re.findall(r"DL\d{4}", done.stdout))


def test_every_exception_of_hadolint_has_its_reason_above_it() -> None:
    lines = (ROOT / ".hadolint.yaml").read_text().splitlines()
    exceptions = [place for place, line in enumerate(lines) if re.match(r"\s+- (DL|SC)\d{4}", line)]
    assert exceptions
    assert all(lines[place - 1].lstrip().startswith("#") for place in exceptions)


def test_what_is_copied_exists_and_reaches_the_builder(container_file, context) -> None:
    for stage in container_file.stages:
        for copied in stage.all("COPY"):
            if copied.startswith("--from="):
                assert copied.split()[0].removeprefix("--from=") in {stage.name for stage in container_file.stages}
                continue
            for source in copied.split()[:-1]:
                assert [name for name in context if name == source or name.startswith(f"{source}/")], source


def test_all_that_is_sent_is_copied_by_one_of_them(read_container_file, context) -> None:
    files = ("router/Dockerfile", "ensembles/Dockerfile", "model_repository/trtllm/Dockerfile")
    stages = [stage for name in files for stage in read_container_file(name).stages]
    sources = {source for stage in stages for copied in stage.all("COPY") for source in copied.split()[:-1]}
    assert not [name for name in context if not any(name == one or name.startswith(f"{one}/") for one in sources)]


def test_the_context_is_small_and_holds_no_secret_no_weights_and_nothing_of_git(context) -> None:
    assert sum((ROOT / name).stat().st_size for name in context) < CONTEXT_BYTES
    for name in context:
        parts = Path(name).parts
        assert not {"model_repository", "secrets", "__pycache__", "tests", "docs"} & set(parts), name
        assert not [part for part in parts if part.startswith((".env", ".git", ".venv"))], name
        assert not re.search(r"(key|password|token|secret)s?$|\.(pem|onnx|gguf|plan|safetensors)$", name), name


@pytest.mark.parametrize(
    "name", [".env", "secrets/hf-token", "observability/prometheus/api-key", "ensembles/notes.txt"]
)
def test_a_file_that_nobody_named_is_never_sent(name: str, tmp_path: Path) -> None:
    from docker.utils.build import exclude_paths

    for made in (name, "platform/zooserve/errors.py", "platform/zooserve/__pycache__/errors.pyc"):
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).write_text("")
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    sent = exclude_paths(str(tmp_path), [line for line in lines if line and line[0] != "#"])
    assert {name for name in sent if (tmp_path / name).is_file()} == {"platform/zooserve/errors.py"}


def test_the_last_user_is_a_number_and_not_root(container_file) -> None:
    user = container_file.stages[-1].all("USER")[-1]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_every_base_image_is_pinned_by_a_tag_that_moves_little(container_file) -> None:
    for stage in container_file.stages:
        image, _, tag = stage.base.partition(":")
        assert image in ("python", "nvcr.io/nvidia/tritonserver")
        assert re.fullmatch(r"3\.12\.\d+-slim-[a-z]+|\d\d\.\d\d-(trtllm-python-)?py3", tag), stage.base


def test_tags_are_those_that_the_example_of_the_environment_has(container_file) -> None:
    example = dict(re.findall(r"^(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.M))
    for name, default in container_file.arguments.items():
        assert example.get(name, default) == default, name


def test_the_router_and_what_made_its_environment_have_the_same_python(container_file) -> None:
    build, final = container_file.stages
    assert build.base == final.base or final.base.startswith("nvcr.io/")


def test_what_is_installed_from_a_registry_is_pinned_by_hash_and_the_wheel_brings_nothing_along(container_file) -> None:
    steps = [step for stage in container_file.stages for run in stage.all("RUN") for step in run.split("&&")]
    installing = [step for step in steps if INSTALLED.search(step)]
    assert installing
    for step in installing:
        if "*.whl" in step:
            assert {"--no-deps", "--offline"} <= set(step.split())
        else:
            assert "--require-hashes -r requirements/" in step


def test_nothing_is_compiled_or_installed_by_pip_in_what_is_shipped(container_file) -> None:
    final = container_file.stages[-1]
    assert not [run for run in final.all("RUN") if INSTALLED.search(run)]
    assert list(final.all("COPY")) == ["--from=build /opt/zooserve /opt/zooserve"]
    assert not [run for run in final.all("RUN") if re.search(r"\b(gcc|build-essential|curl|wget|git)\b", run)]


def test_debian_brings_the_router_what_a_checkout_needs_and_python_has_not(read_container_file) -> None:
    (_, final) = read_container_file("router/Dockerfile").stages
    installed = re.search(r"--no-install-recommends (.+?) &&", " ".join(final.all("RUN")))
    looked_for = re.findall(r'missing="\$missing ([a-z0-9]+)"', (ROOT / "platform/deploy/prerequisites.sh").read_text())
    # The other two, libpython and venv, are part of Docker's Python.
    assert installed is not None
    assert installed[1].split() == looked_for


def test_no_image_relies_on_pythonpath_or_holds_a_secret(container_file) -> None:
    variables = " ".join(value for stage in container_file.stages for value in (*stage.all("ENV"), *stage.all("ARG")))
    assert "PYTHONPATH" not in variables
    assert not re.search(r"TOKEN|PASSWORD|SECRET|KEY", variables)


def test_labels_tell_the_version_and_licence_of_the_project(container_file) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (labels,) = container_file.stages[-1].all("LABEL")
    told = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', labels))
    assert told["version"] == project["version"]
    assert told["licenses"] == project["license"]


def test_the_wheel_is_made_alike_in_all_of_them(read_container_file) -> None:
    """Their builders share the layers then, and one test of the steps is one of all."""
    files = ("router/Dockerfile", "ensembles/Dockerfile", "model_repository/trtllm/Dockerfile")
    alike = set()
    for name in files:
        (build, _) = read_container_file(name).stages
        made = [run.split("&&")[0].strip() for run in build.all("RUN") if "hatchling" in run]
        copied = [copied for copied in build.all("COPY") if not copied.startswith("requirements/")]
        alike.add((*made, *copied))
    assert len(alike) == 1


def test_the_package_index_is_out_of_reach_while_our_wheel_is_made(container_file) -> None:
    (made,) = (run for run in container_file.stages[0].all("RUN") if "hatchling" in run)
    assert made.startswith("--network=none ")
