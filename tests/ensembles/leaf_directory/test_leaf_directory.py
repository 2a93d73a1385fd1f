"""The checker of a leaf's model directories: ours are sound, and each seeded fault is found by name, file and line."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from zooserve.leaf.release import known_releases, load_release
from zooserve_ensembles.checking import Report
from zooserve_ensembles.leaf_directory import LEAF_RULES, check_leaf_directories

REPOSITORY = Path(__file__).parents[3] / "model_repository"
VARIANTS = sorted(folder.name for folder in (REPOSITORY / "trtllm").iterdir() if folder.is_dir())


def faults(report: Report) -> list[tuple[str, str, str]]:
    """Each finding as rule, file name and the line that it points at."""
    told = []
    for finding in report.findings:
        file = finding.place.file
        lines = file.read_text().splitlines() if file.is_file() else []
        line = lines[finding.place.line - 1].strip() if lines and finding.place.line else ""
        told.append((finding.rule, file.name, line))
    return told


@pytest.fixture
def seeded(tmp_path: Path):
    """A copy of one of our directories, with one text replaced by another."""

    def made(variant: str, file: str, old: str, new: str) -> Path:
        folder = tmp_path / "tensorrt_llm"
        shutil.copytree(REPOSITORY / "trtllm" / variant / "tensorrt_llm", folder)
        path = folder / file
        text = path.read_text()
        assert old in text, f"{path} has no {old!r}"
        path.write_text(text.replace(old, new, 1))
        return folder

    return made


@pytest.mark.parametrize("variant", VARIANTS)
def test_our_own_directories_have_no_fault(variant: str) -> None:
    report = check_leaf_directories(REPOSITORY / "trtllm" / variant)
    assert [str(finding) for finding in report.findings] == []
    assert report.models == 1


def test_the_embedded_leafs_directory_is_held_against_the_contract_too(tmp_path: Path) -> None:
    assert check_leaf_directories(REPOSITORY / "leaf").findings == ()
    folder = tmp_path / "tensorrt_llm"
    shutil.copytree(REPOSITORY / "leaf" / "tensorrt_llm", folder, ignore=shutil.ignore_patterns("*.gguf", "*.json"))
    config = folder / "config.pbtxt"
    config.write_text(
        config.read_text().replace("decoupled: true", "decoupled: false").replace("TYPE_UINT64", "TYPE_INT32")
    )
    found = [(rule, file) for rule, file, _ in faults(check_leaf_directories(tmp_path))]
    assert found == [
        ("not-decoupled", "config.pbtxt"),
        ("tensor-differs", "config.pbtxt"),
        ("tensor-differs", "config.pbtxt"),
    ]


MODEL, PBTXT, RELEASE, LAUNCH = "1/model.yaml", "config.pbtxt", "release.yaml", "launch.sh"
INSTANCES = "instance_group [ { count: 1, kind: KIND_CPU } ]"
BACKEND = "backend: pytorch\n"
IDS = 'string_value: "0,1;2,3"'
TEXT_OUTPUT = '"text_output", data_type: TYPE_STRING, dims: [ -1 ]'
STOP = '"stop", data_type: TYPE_BOOL, dims: [ 1 ], optional: true'
STOP_REASON = '  { name: "return_stop_reason", data_type: TYPE_BOOL, dims: [ 1 ], optional: true }'
LORA_PATH = '  { name: "lora_path", data_type: TYPE_STRING, dims: [ 1 ], optional: true }'

# What is seeded: (variant, file, old text, new text), and what must be found: (rule, file, the line it points at).
SEEDED = {
    "decoupled at top level": (
        ("llama_8b", MODEL, BACKEND, BACKEND + "decoupled: true\n"),
        ("decoupled-at-top-level", "model.yaml", "decoupled: true"),
    ),
    "decoupled false": (
        ("llama_8b", MODEL, "decoupled: true #", "decoupled: false #"),
        ("not-decoupled", "model.yaml", "decoupled: false # false: no streaming"),
    ),
    "decoupled missing": (
        ("llama_8b", MODEL, "  decoupled: true # false: no streaming\n", ""),
        ("triton-config-missing", "model.yaml", "triton_config:"),
    ),
    "decoupled false in the pbtxt": (
        ("llama_8b", PBTXT, "decoupled: true }", "decoupled: false }"),
        ("not-decoupled", "config.pbtxt", "model_transaction_policy { decoupled: false }"),
    ),
    "no triton_config": (
        ("llama_8b", MODEL, "triton_config:", "triton_configuration:"),
        ("triton-config-missing", "model.yaml", "# LLM arguments"),
    ),
    "backend pytorch in the pbtxt": (
        ("llama_8b", PBTXT, 'backend: "python"', 'backend: "pytorch"'),
        ("backend-in-pbtxt", "config.pbtxt", 'backend: "pytorch"'),
    ),
    "backend under triton_config": (
        ("llama_8b", MODEL, "triton_config:\n", "triton_config:\n  backend: pytorch\n"),
        ("backend-in-triton-config", "model.yaml", "backend: pytorch"),
    ),
    "no backend": (("llama_8b", MODEL, BACKEND, ""), ("engine-backend", "model.yaml", "")),
    "another engine's backend": (
        ("llama_8b", MODEL, BACKEND, "backend: tensorrt\n"),
        ("engine-backend", "model.yaml", "backend: tensorrt"),
    ),
    "triton_config.max_batch_size above 0": (
        ("llama_8b", MODEL, "max_batch_size: 0 #", "max_batch_size: 64 #"),
        ("wrapper-batches", "model.yaml", "max_batch_size: 64 # the wrapper"),
    ),
    "max_batch_size above 0 in the pbtxt": (
        ("llama_8b", PBTXT, "max_batch_size: 0", "max_batch_size: 64"),
        ("wrapper-batches", "config.pbtxt", "max_batch_size: 64"),
    ),
    "a dynamic_batching block": (
        ("llama_8b", PBTXT, INSTANCES, INSTANCES + "\ndynamic_batching { max_queue_delay_microseconds: 100 }\n"),
        ("dynamic-batching", "config.pbtxt", "dynamic_batching {"),
    ),
    "fewer sets than instances": (
        ("instances", PBTXT, IDS, 'string_value: "0,1"'),
        ("gpu-device-ids", "config.pbtxt", 'parameters { key: "gpu_device_ids" value { string_value: "0,1" } }'),
    ),
    "more sets than instances": (
        ("instances", PBTXT, IDS, 'string_value: "0,1;2,3;4,5"'),
        ("gpu-device-ids", "config.pbtxt", 'parameters { key: "gpu_device_ids"'),
    ),
    "a set smaller than the world": (
        ("instances", PBTXT, IDS, 'string_value: "0,1;2"'),
        ("gpu-device-ids", "config.pbtxt", 'parameters { key: "gpu_device_ids"'),
    ),
    "the world larger than the sets": (
        ("instances", MODEL, "pipeline_parallel_size: 1", "pipeline_parallel_size: 2"),
        ("gpu-device-ids", "config.pbtxt", 'parameters { key: "gpu_device_ids"'),
    ),
    "a GPU for two instances": (
        ("instances", PBTXT, IDS, 'string_value: "0,1;1,2"'),
        ("gpu-device-ids", "config.pbtxt", 'parameters { key: "gpu_device_ids"'),
    ),
    "no numbers": (
        ("instances", PBTXT, IDS, 'string_value: "0,1;2,all"'),
        ("gpu-device-ids", "config.pbtxt", 'parameters { key: "gpu_device_ids"'),
    ),
    "no gpu_device_ids": (
        ("instances", PBTXT, 'key: "gpu_device_ids"', 'key: "gpus"'),
        ("gpu-device-ids", "config.pbtxt", "instance_group [ { count: 2"),
    ),
    "instances without --no-mpi": (
        ("instances", LAUNCH, "  --no-mpi --model_repo", "  --model_repo"),
        ("instances-need-no-mpi", "launch.sh", "exec python3"),
    ),
    "instances of a release that has one": (
        ("llama_8b", PBTXT, "count: 1", "count: 2"),
        ("one-instance-only", "config.pbtxt", "instance_group [ { count: 2"),
    ),
    "KIND_GPU": (
        ("llama_8b", PBTXT, "KIND_CPU", "KIND_GPU"),
        ("instance-kind", "config.pbtxt", "instance_group [ { count: 1, kind: KIND_GPU"),
    ),
    "a wrapper of another release": (
        ("llama_8b", RELEASE, "wrapper: v1.2.1", "wrapper: v1.1.0"),
        ("wrapper-release", "release.yaml", "wrapper: v1.1.0"),
    ),
    "a container of another release": (
        ("llama_8b", RELEASE, "container: 26.07", "container: 26.02"),
        ("container-release", "release.yaml", "container: 26.02"),
    ),
    "a release that nobody recorded": (
        ("llama_8b", RELEASE, "library: 1.2.1", "library: 9.9.9"),
        ("release-unknown", "release.yaml", "library: 9.9.9"),
    ),
    "a key that means nothing": (
        ("llama_8b", RELEASE, "container:", "image:"),
        ("release-key", "release.yaml", "image: 26.07"),
    ),
    "an unknown argument": (
        ("llama_8b", MODEL, "max_num_tokens:", "max_tokens_num:"),
        ("unknown-argument", "model.yaml", "max_tokens_num: 8192"),
    ),
    "an unknown argument inside another": (
        ("llama_8b", MODEL, "free_gpu_memory_fraction", "free_gpu_mem_fraction"),
        ("unknown-argument", "model.yaml", "free_gpu_mem_fraction: 0.85"),
    ),
    "an argument of a later release": (
        ("llama_8b", MODEL, "scheduler_config:\n", "scheduler_config:\n  waiting_queue_policy: fcfs\n"),
        ("unknown-argument", "model.yaml", "waiting_queue_policy: fcfs"),
    ),
    "an argument of another kind of drafts": (
        ("speculative", MODEL, "decoding_type: NGram", "decoding_type: MTP"),
        ("unknown-argument", "model.yaml", "max_matching_ngram_size: 3"),
    ),
    "drafts of no kind": (
        ("speculative", MODEL, "decoding_type: NGram", "decoding_type: Guess"),
        ("argument-type", "model.yaml", "decoding_type: Guess"),
    ),
    "a doubtful argument": (
        ("llama_8b", MODEL, BACKEND, BACKEND + "sampler_type: auto\n"),
        ("doubtful-argument", "model.yaml", "sampler_type: auto"),
    ),
    "text for a number": (
        ("llama_8b", MODEL, "max_seq_len: 8192", "max_seq_len: many"),
        ("argument-type", "model.yaml", "max_seq_len: many"),
    ),
    "true for a number": (
        ("llama_8b", MODEL, "max_seq_len: 8192", "max_seq_len: true"),
        ("argument-type", "model.yaml", "max_seq_len: true"),
    ),
    "a policy that there is not": (
        ("llama_8b", MODEL, "GUARANTEED_NO_EVICT", "FIRST_COME"),
        ("argument-type", "model.yaml", "capacity_scheduler_policy: FIRST_COME"),
    ),
    "a list for a mapping": (
        ("llama_8b", MODEL, "kv_cache_config:\n  free_gpu_memory_fraction:", "kv_cache_config: [0.85]\nx:\n  y:"),
        ("argument-type", "model.yaml", "kv_cache_config: [0.85]"),
    ),
    "an unknown key of triton_config": (
        ("llama_8b", MODEL, "cancellation_check_period_ms", "cancel_check_period_ms"),
        ("unknown-triton-config", "model.yaml", "cancel_check_period_ms: 50"),
    ),
    "an LLM argument under triton_config": (
        ("llama_8b", MODEL, "triton_config:\n", "triton_config:\n  max_num_tokens: 8192\n"),
        ("unknown-triton-config", "model.yaml", "max_num_tokens: 8192"),
    ),
    "multimodal before its release": (
        ("llama_8b", MODEL, "triton_config:\n", "triton_config:\n  multimodal: true\n"),
        ("unknown-triton-config", "model.yaml", "multimodal: true"),
    ),
    "text for a flag of triton_config": (
        ("llama_8b", MODEL, "cancellation_check_period_ms: 50", "cancellation_check_period_ms: soon"),
        ("argument-type", "model.yaml", "cancellation_check_period_ms: soon"),
    ),
    "experts that do not make up the whole": (
        ("mixtral", MODEL, "moe_tensor_parallel_size: 2", "moe_tensor_parallel_size: 4"),
        ("moe-parallel", "model.yaml", "moe_expert_parallel_size: 2"),
    ),
    "a tensor missing": (
        ("llama_8b", PBTXT, f"{STOP_REASON},\n", ""),
        ("tensor-missing", "config.pbtxt", '{ name: "text_input"'),
    ),
    "a tensor misspelt": (
        ("llama_8b", PBTXT, '"sampling_param_seed"', '"sampling_param_random_seed"'),
        ("tensor-unknown", "config.pbtxt", '{ name: "sampling_param_random_seed"'),
    ),
    "another type": (
        ("llama_8b", PBTXT, "TYPE_UINT64", "TYPE_INT64"),
        ("tensor-differs", "config.pbtxt", '{ name: "sampling_param_seed", data_type: TYPE_INT64'),
    ),
    "other dims": (
        ("llama_8b", PBTXT, TEXT_OUTPUT, TEXT_OUTPUT.replace("-1", "1")),
        ("tensor-differs", "config.pbtxt", '{ name: "text_output"'),
    ),
    "not optional": (
        ("llama_8b", PBTXT, STOP, STOP.replace(", optional: true", "")),
        ("tensor-differs", "config.pbtxt", '{ name: "stop"'),
    ),
    "an input that the wrapper does not read": (
        ("llama_8b", PBTXT, "input [\n", f"input [\n{LORA_PATH},\n"),
        ("tensor-unread", "config.pbtxt", '{ name: "lora_path"'),
    ),
    "a pbtxt that Triton refuses": (
        ("llama_8b", PBTXT, "max_batch_size: 0", "max_batchsize: 0"),
        ("config-syntax", "config.pbtxt", "max_batchsize: 0"),
    ),
    "a YAML file that is none": (
        ("llama_8b", MODEL, "triton_config:", "triton_config: ]"),
        ("yaml-syntax", "model.yaml", "triton_config: ]"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), SEEDED.values(), ids=SEEDED)
def test_a_seeded_fault_is_found_by_name_file_and_line(change, expected, seeded) -> None:
    found = faults(check_leaf_directories(seeded(*change)))
    rule, file, line = expected
    assert [told for told in found if told[:2] == (rule, file) and told[2].startswith(line)], found


def test_every_rule_has_a_seeded_fault() -> None:
    elsewhere = {"no-leaf-directory", "release-untold"}
    assert {expected[0] for _, expected in SEEDED.values()} - {"config-syntax"} | elsewhere == {
        rule.name for rule in LEAF_RULES
    }


def test_a_folder_without_a_leaf_is_told_so(tmp_path: Path) -> None:
    (finding,) = check_leaf_directories(tmp_path).findings
    assert (finding.rule, finding.place.file) == ("no-leaf-directory", tmp_path)


def test_nvidias_own_directory_without_release_yaml_is_a_warning_until_the_release_is_given(seeded) -> None:
    folder = seeded("llama_8b", RELEASE, "wrapper", "wrapper")
    (folder / "release.yaml").unlink()
    assert [rule for rule, _, _ in faults(check_leaf_directories(folder))] == ["release-untold"]
    assert check_leaf_directories(folder).passes()
    assert check_leaf_directories(folder, release="1.2.1").findings == ()


def test_a_launch_script_of_ones_own_counts(seeded, tmp_path: Path) -> None:
    folder = seeded("instances", LAUNCH, "--no-mpi", "")
    assert not check_leaf_directories(folder).passes()
    own = tmp_path / "start.sh"
    own.write_text("python3 launch_triton_server.py --model_repo=/models --no-mpi\n")
    assert check_leaf_directories(folder, launch=own).passes()


def test_several_instances_and_nothing_that_says_how_they_are_started(seeded) -> None:
    folder = seeded("instances", LAUNCH, "", "")
    (folder / "launch.sh").unlink()
    (finding,) = check_leaf_directories(folder).findings
    assert finding.rule == "instances-need-no-mpi"
    assert "--launch" in finding.message


def test_a_comment_about_no_mpi_is_no_launch_with_it(seeded) -> None:
    folder = seeded("instances", LAUNCH, "  --no-mpi --model_repo", "  --model_repo")
    script = folder / "launch.sh"
    script.write_text(f"# needs --no-mpi\n{script.read_text()}")
    assert not check_leaf_directories(folder).passes()


NEWER = "class TritonPythonModel: ...  # handle_stop_request cancellation_check_period_ms gpu_device_ids"
OLDER = "class TritonPythonModel: ...  # handle_stop_request cancellation_check_period_ms"


@pytest.mark.parametrize(("variant", "code", "word"), [("llama_8b", NEWER, "knows"), ("instances", OLDER, "not know")])
def test_a_model_py_of_another_release_is_told_by_what_it_knows(variant: str, code: str, word: str, seeded) -> None:
    folder = seeded(variant, RELEASE, "wrapper", "wrapper")
    (folder / "1" / "model.py").write_text(code)
    (finding,) = check_leaf_directories(folder).findings
    assert (finding.rule, finding.place.file.name) == ("wrapper-release", "model.py")
    assert word in finding.message
    assert "gpu_device_ids" in finding.message


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_example_follows_documentation_that_was_not_run_and_says_so(variant: str) -> None:
    script = (REPOSITORY / "trtllm" / variant / "tensorrt_llm" / "launch.sh").read_text()
    assert "not run here" in script
    assert re.search(r"^cd /tmp", script, re.MULTILINE), "from a clone, Python imports the clone"


def test_the_example_environment_pins_the_container_of_a_recorded_release() -> None:
    text = (REPOSITORY.parent / ".env.example").read_text()
    tag = re.search(r"^TRTLLM_TAG=(\S+)$", text, re.MULTILINE)
    assert tag is not None
    assert tag.group(1) in {load_release(release).container for release in known_releases()}


@pytest.mark.parametrize("release", known_releases())
def test_every_record_names_its_sources_and_inputs_of_the_contract(release: str) -> None:
    record = load_release(release)
    assert record.release == release
    assert all(re.search(r"\b[0-9a-f]{8}\b", source) for source in record.sources)
    assert "text_input" in record.inputs


def test_a_release_without_a_record_is_told_with_those_that_have_one() -> None:
    with pytest.raises(LookupError, match=r"known: 1\.2\.1"):
        load_release("0.1.0")


def test_the_documentation_lists_every_rule_as_it_is() -> None:
    page = (REPOSITORY.parent / "docs" / "leaf.md").read_text()
    assert [
        rule.name for rule in LEAF_RULES if f"| `{rule.name}` | {rule.severity} | {rule.summary} |" not in page
    ] == []


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["backend", "tensor_parallel_size", "moe_expert_parallel_size", "kv_cache_config", "speculative_config"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([*KEYS, "triton_config", "decoupled", "scheduler_config"]), ANYTHING, st.booleans())
def test_whatever_a_key_is_set_to_is_a_finding_and_no_traceback(
    tmp_path: Path, key: str, value: Any, inside: bool
) -> None:
    folder = tmp_path / "tensorrt_llm"
    shutil.copytree(REPOSITORY / "trtllm" / "llama_8b" / "tensorrt_llm", folder, dirs_exist_ok=True)
    knobs = {"backend": "pytorch", "triton_config": {"decoupled": True, "max_batch_size": 0}}
    changed = {**knobs, "triton_config": {**knobs["triton_config"], key: value}} if inside else {**knobs, key: value}
    with (folder / "1" / "model.yaml").open("w") as file:
        YAML(typ="safe").dump(changed, file)
    (folder / "release.yaml").write_text(f"library: 1.2.1\nwrapper: {json.dumps(str(value))}\n")
    assert check_leaf_directories(folder).models == 1


def test_a_folder_far_below_is_not_looked_for(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c" / "d" / "tensorrt_llm"
    shutil.copytree(REPOSITORY / "trtllm" / "llama_8b" / "tensorrt_llm", deep)
    assert check_leaf_directories(tmp_path).models == 0
    assert check_leaf_directories(tmp_path / "a" / "b").models == 1
