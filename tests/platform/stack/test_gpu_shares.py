"""What the servers of one card come to, and that too much is told with the largest part."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from zooserve.triton.configs import read_configs
from zooserve_cli.stack.gpu_shares import (
    CONTEXT_BYTES,
    LARGEST_SHARE,
    POOL_BYTES,
    SESSION_BYTES,
    CardSettings,
    Server,
    card_settings,
    card_shares,
    enabled,
)

ROOT = Path(__file__).parents[3]
ZOO = ROOT / "model_repository" / "zoo"
GIB = 1 << 30
H100 = 85_520_809_984
LLAMA = 16_060_522_240


def on_card(limit: str | None, count: int = 1, kind: str = "KIND_GPU", backend: str = "onnxruntime") -> Any:
    parameter = f'parameters {{ key: "gpu_mem_limit" value {{ string_value: "{limit}" }} }}' if limit else ""
    text = f'backend: "{backend}" instance_group [ {{ count: {count} kind: {kind} }} ] {parameter}'
    return text_format.Parse(text, pb.ModelConfig())


def zoo(*words: str, **configs: Any) -> Server:
    return Server("zoo", words, configs=configs)


def leaf(fraction: str = "0.7") -> Server:
    return Server("leaf", (), model_yaml=f"kv_cache_config:\n  free_gpu_memory_fraction: {fraction}\n")


def vllm(*words: str) -> Server:
    return Server("vllm", ("vllm", "serve", *words))


def test_a_limit_counts_for_each_instance_and_the_cpu_takes_nothing() -> None:
    server = zoo(one=on_card(str(GIB)), two=on_card(str(GIB), count=2), cpu=on_card(str(GIB), kind="KIND_CPU"))
    shares = card_shares(CardSettings(H100), [server])
    assert shares.total == CONTEXT_BYTES + POOL_BYTES + 3 * (GIB + SESSION_BYTES)
    assert not shares.fault


def test_a_session_without_a_limit_may_take_the_whole_card() -> None:
    shares = card_shares(CardSettings(H100), [zoo(one=on_card(None))])
    assert shares.fault == "zoo: one runs on the card and has no gpu_mem_limit among its parameters"
    assert "one runs on" in card_shares(CardSettings(H100), [zoo(one=on_card("1", backend="tensorrt"))]).fault


@pytest.mark.parametrize("group", ["", "instance_group [ { count: 1 } ]"])
def test_an_onnx_model_whose_kind_is_not_said_is_on_the_card(group: str) -> None:
    config = text_format.Parse(f'backend: "onnxruntime" {group}', pb.ModelConfig())
    assert "one runs on the card" in card_shares(CardSettings(H100), [zoo(one=config)]).fault
    python = text_format.Parse(f'backend: "python" {group}', pb.ModelConfig())
    ensemble = text_format.Parse('platform: "ensemble"', pb.ModelConfig())
    assert not card_shares(CardSettings(H100), [zoo(one=python, two=ensemble)]).fault


@pytest.mark.parametrize("words", [["--cuda-memory-pool-byte-size=0:1000"], ["--cuda-memory-pool-byte-size", "0:1000"]])
def test_triton_s_pool_is_as_it_says(words: list[str]) -> None:
    assert card_shares(CardSettings(H100), [zoo(*words)]).total == CONTEXT_BYTES + 1000


def test_vllm_takes_its_part_of_the_whole_card_whatever_else_is_there() -> None:
    shares = card_shares(CardSettings(100 * GIB), [vllm("--gpu-memory-utilization=0.5"), zoo(one=on_card(str(GIB)))])
    assert shares.parts[0].bytes == 50 * GIB
    assert shares.parts[1].bytes == CONTEXT_BYTES


def test_tensorrt_llm_takes_its_part_of_what_its_weights_leave() -> None:
    shares = card_shares(CardSettings(100 * GIB, 20 * GIB, 10 * GIB), [leaf("0.5")])
    assert shares.parts[-1].bytes == round(0.5 * (70 * GIB - CONTEXT_BYTES))
    assert shares.total == shares.parts[-1].bytes + 30 * GIB + CONTEXT_BYTES


def test_the_same_number_is_another_share_for_either_engine() -> None:
    settings = CardSettings(100 * GIB, 20 * GIB, 10 * GIB)
    assert (
        card_shares(settings, [leaf("0.6")]).total > card_shares(settings, [vllm("--gpu_memory_utilization=0.6")]).total
    )


@pytest.mark.parametrize(
    ("server", "largest"),
    [
        (vllm("--gpu-memory-utilization", "0.9"), "vllm: 0.9 of the card (gpu_memory_utilization)"),
        (vllm(), "vllm: 0.9 of the card (gpu_memory_utilization)"),
        (leaf("0.85"), "leaf: 0.85 of what those leave (free_gpu_memory_fraction)"),
        (Server("leaf", (), model_yaml="model: x\n"), "leaf: 0.9 of what those leave (free_gpu_memory_fraction)"),
    ],
)
def test_too_much_beside_the_committed_zoo_is_told_with_the_largest_part(server: Server, largest: str) -> None:
    shared = Server("zoo-shared", (), configs=read_configs(ZOO, "shared"))
    shares = card_shares(CardSettings(H100, LLAMA), [shared, server])
    assert shares.share(shares.total) > LARGEST_SHARE
    assert f"the largest part is {largest} with" in shares.fault


@pytest.mark.parametrize("server", [vllm("--gpu-memory-utilization=0.8"), leaf("0.7")])
def test_the_committed_zoo_fits_beside_either_engine_with_a_smaller_share(server: Server) -> None:
    shared = Server("zoo-shared", ("--cuda-memory-pool-byte-size=0:67108864",), configs=read_configs(ZOO, "shared"))
    shares = card_shares(CardSettings(H100, LLAMA), [shared, server])
    assert shares.fault == ""
    assert shares.total <= LARGEST_SHARE * H100


def test_the_zoo_alone_can_be_too_much() -> None:
    h200 = Server("zoo", (), configs=read_configs(ZOO, "h200"))
    shares = card_shares(CardSettings(16 * GIB), [h200])
    assert "the largest part is zoo: embed_sparse_encoder (gpu_mem_limit) with 8.09 GiB" in shares.fault


def test_the_default_configurations_take_nothing_of_a_card() -> None:
    assert card_shares(CardSettings(H100), [Server("zoo", (), configs=read_configs(ZOO))]).total == (
        CONTEXT_BYTES + POOL_BYTES
    )


def test_what_is_not_enabled_is_not_counted() -> None:
    configs = enabled(read_configs(ZOO, "shared"), ["embed", "classify", "unheard-of"])
    assert set(configs) == {
        "classify",
        "classify_encoder",
        "classify_tokenizer",
        "embed",
        "embed_encoder",
        "embed_tokenizer",
    }
    parts = card_shares(CardSettings(H100), [Server("zoo", (), configs=configs)]).parts
    assert [part.name for part in parts if "encoder" in part.name] == ["zoo: embed_encoder (gpu_mem_limit)"]


def test_the_table_names_each_part_with_bytes_and_share_and_ends_with_the_sum() -> None:
    lines = card_shares(CardSettings(100 * GIB), [vllm("--gpu-memory-utilization=0.5")]).lines()
    assert [line.split()[-2:] for line in lines] == [
        ["53,687,091,200", "0.500"],
        ["556,793,856", "0.005"],
        ["54,243,885,056", "0.505"],
    ]
    assert lines[-1].startswith("in all")


@pytest.mark.parametrize(
    ("servers", "settings", "says"),
    [
        ([vllm("--gpu-memory-utilization=1.2")], CardSettings(H100), "above 0 and at most 1"),
        ([vllm("--gpu-memory-utilization=${SHARE}")], CardSettings(H100), "gpu-memory-utilization is"),
        ([leaf("most")], CardSettings(H100, LLAMA), "free_gpu_memory_fraction is 'most'"),
        ([leaf()], CardSettings(H100), "set LEAF_SHARED_WEIGHTS_BYTES"),
        ([Server("leaf", (), model_yaml="a: [")], CardSettings(H100, LLAMA), "cannot be read"),
        ([zoo("--cuda-memory-pool-byte-size=64m")], CardSettings(H100), "must be <card>:<bytes>"),
        ([zoo(one=on_card("1GiB"))], CardSettings(H100), "not a number of bytes"),
    ],
)
def test_a_share_that_cannot_be_read_is_told(servers: list[Server], settings: CardSettings, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        card_shares(settings, servers)


def test_the_card_is_read_from_the_environment() -> None:
    given = {"SHARED_GPU_BYTES": " 1000 ", "LEAF_SHARED_WEIGHTS_BYTES": "20", "LEAF_SHARED_WORKSPACE_BYTES": "3"}
    assert card_settings(given) == CardSettings(1000, 20, 3)
    assert card_settings({"SHARED_GPU_BYTES": "5"}).weights_bytes == 0


@pytest.mark.parametrize("written", ["", "0", "80GB", "-1"])
def test_a_card_without_a_size_is_told(written: str) -> None:
    with pytest.raises(ValueError, match="SHARED_GPU_BYTES"):
        card_settings({"SHARED_GPU_BYTES": written})
