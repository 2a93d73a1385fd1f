"""KV arithmetic: bytes of a token from a config, tokens of a budget from memory, and faults by line and field."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from zooserve.catalogue import CatalogueError, KvConfig, load_catalogue

ROOT = Path(__file__).parents[2]

LLAMA_3_1_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
}
SMOLLM2_135M: dict[str, Any] = {
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "torch_dtype": "bfloat16",
}

CHAT = """\
models:
  - name: chat
    task: chat
    runs_on: leaf
    triton: {interactive: tensorrt_llm}
    tokenizer: tokenizer.json
    chat_template: template.jinja
    limits: {max_tokens: 2048}
    kv_config: {num_hidden_layers: 30, num_attention_heads: 9, num_key_value_heads: 3, hidden_size: 576}
    kv_memory_bytes: 754974720
    licence: none
    source: a test
"""
KV_CONFIG = CHAT.splitlines(keepends=True)[8]
KV_MEMORY = CHAT.splitlines(keepends=True)[9]


@pytest.mark.parametrize(
    ("config", "dtype", "expected"),
    [
        (LLAMA_3_1_8B, None, 131_072),
        (LLAMA_3_1_8B, "float16", 131_072),
        (LLAMA_3_1_8B, "float8", 65_536),
        (SMOLLM2_135M, None, 23_040),
        ({**SMOLLM2_135M, "num_key_value_heads": None}, None, 69_120),
        ({**SMOLLM2_135M, "head_dim": 128}, None, 46_080),
        ({"text_config": SMOLLM2_135M, "vision_config": {}}, None, 23_040),
        ({**SMOLLM2_135M, "sliding_window": 4096, "use_sliding_window": False}, None, 23_040),
        ({**SMOLLM2_135M, "torch_dtype": None, "dtype": "float32"}, None, 46_080),
    ],
    ids=["Llama 3.1 8B", "in FP16", "in FP8", "SmolLM2", "every head", "head_dim", "nested", "no window", "dtype"],
)
def test_the_bytes_of_a_token_follow_from_a_checkpoints_config(config, dtype, expected) -> None:
    assert KvConfig.of_checkpoint(config, dtype).bytes_per_token == expected


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"sliding_window": 4096}, "sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layers of sliding_attention"),
        ({"layer_types": ["linear_attention"]}, "layers of linear_attention"),
        ({"hidden_size": None}, "`head_dim`, or `hidden_size`"),
        ({"hidden_size": 577}, "no multiple"),
        ({"num_key_value_heads": 4}, "no multiple"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"torch_dtype": "mxfp4"}, "torch_dtype"),
    ],
)
def test_attention_that_cannot_be_counted_so_is_refused_with_the_reason(more, says) -> None:
    with pytest.raises(ValidationError, match=says):
        KvConfig.of_checkpoint({**SMOLLM2_135M, **more})


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "zoo.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("lines", "tokens"),
    [
        (KV_CONFIG + KV_MEMORY, 32_768),
        ("    kv_bytes_per_token: 23040\n    kv_memory_bytes: 754974720\n", 32_768),
        ("    kv_bytes_per_token: 131072\n    kv_memory_bytes: 17179869184\n", 131_072),
        ("    kv_budget_tokens: 1000\n", 1000),
        ("    kv_budget_tokens: 1000\n" + KV_CONFIG, 1000),
    ],
    ids=["memory and config", "memory and bytes", "16 GiB of Llama", "tokens", "tokens, and what they take"],
)
def test_the_budget_is_given_in_tokens_or_follows_from_memory(write, lines, tokens) -> None:
    catalogue = load_catalogue(write(CHAT.replace(KV_CONFIG + KV_MEMORY, lines)))
    assert catalogue.resolve("chat").kv_tokens == tokens


@pytest.mark.parametrize(
    ("lines", "line", "field", "says"),
    [
        ("    kv_budget_tokens: 1000\n" + KV_CONFIG + KV_MEMORY, 11, "models.0.kv_memory_bytes", "give one of the two"),
        (KV_MEMORY, 9, "models.0.kv_memory_bytes", "give `kv_config` or `kv_bytes_per_token` too"),
        ("    kv_bytes_per_token: 23040\n" + KV_CONFIG + KV_MEMORY, 10, "models.0.kv_config", "give one of the two"),
        (KV_CONFIG + "    kv_memory_bytes: 1000\n", 10, "models.0.kv_memory_bytes", "one token takes 23040 bytes"),
        (KV_CONFIG.replace("heads: 3", "heads: 4") + KV_MEMORY, 9, "models.0.kv_config", "no multiple"),
        (KV_CONFIG.replace("layers", "layer") + KV_MEMORY, 9, "models.0.kv_config.num_hidden_layer", ""),
        ("", 2, "models.0", "`kv_budget_tokens`, or `kv_memory_bytes`"),
    ],
)
def test_a_budget_that_cannot_be_is_told_with_line_and_field(write, lines, line, field, says) -> None:
    path = write(CHAT.replace(KV_CONFIG + KV_MEMORY, lines))
    with pytest.raises(CatalogueError) as caught:
        load_catalogue(path)
    assert str(caught.value).startswith(f"{path}:{line}: {field}")
    assert says in str(caught.value)


def test_the_committed_chat_model_has_room_for_sixteen_full_contexts() -> None:
    chat = load_catalogue(ROOT / "zoo.yaml").resolve("chat")
    assert (chat.kv_token_bytes, chat.kv_tokens) == (23_040, 16 * 2048)
