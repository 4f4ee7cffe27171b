"""Shapes of the most used open models, by their Hugging Face names: planning needs no network for them.

Values are those of each model's public `config.json` (huggingface.co/NAME/blob/main/config.json). The last column is a checksum: the number
of parameters on the model's page, which a test compares with the sum from the dimensions. Models of one row differ only in weights. Models
with an uncertain configuration are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api.local_files import hub_name

_COLUMNS = (
    *("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size"),
    *("vocab_size", "max_position_embeddings", "tie_word_embeddings"),
)
_Dimensions = tuple[int, int, int, int, int | None, int, int, int, bool]
_WINDOW_4K: Mapping[str, Any] = {"sliding_window": 4096}
_GEMMA3: Mapping[str, Any] = {"sliding_window": 512, "sliding_window_pattern": 6}
_DEEPSEEK_V3: Mapping[str, Any] = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
}
_DEEPSEEK_V2_LITE: Mapping[str, Any] = {
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
}
_MIXTRAL: Mapping[str, Any] = {"num_local_experts": 8, "num_experts_per_tok": 2}

# fmt: off
_TABLE: tuple[tuple[str, str, _Dimensions, int, Mapping[str, Any]], ...] = (
    # names; model_type; layers, hidden, heads, key heads, width of a head, ffn, vocabulary, positions, tied; parameters; more fields
    # Meta Llama
    ("huggyllama/llama-7b", "llama", (32, 4096, 32, 32, None, 11008, 32000, 2048, False), 6_738_415_616, {}),
    ("huggyllama/llama-13b", "llama", (40, 5120, 40, 40, None, 13824, 32000, 2048, False), 13_015_864_320, {}),
    ("meta-llama/Llama-2-7b-hf meta-llama/Llama-2-7b-chat-hf NousResearch/Llama-2-7b-hf NousResearch/Llama-2-7b-chat-hf "
     "lmsys/vicuna-7b-v1.5", "llama", (32, 4096, 32, 32, None, 11008, 32000, 4096, False), 6_738_415_616, {}),
    ("meta-llama/Llama-2-13b-hf meta-llama/Llama-2-13b-chat-hf NousResearch/Llama-2-13b-hf lmsys/vicuna-13b-v1.5",
     "llama", (40, 5120, 40, 40, None, 13824, 32000, 4096, False), 13_015_864_320, {}),
    ("meta-llama/Llama-2-70b-hf meta-llama/Llama-2-70b-chat-hf",
     "llama", (80, 8192, 64, 8, None, 28672, 32000, 4096, False), 68_976_648_192, {}),
    ("codellama/CodeLlama-7b-hf codellama/CodeLlama-7b-Instruct-hf",
     "llama", (32, 4096, 32, 32, None, 11008, 32016, 16384, False), 6_738_546_688, {}),
    ("codellama/CodeLlama-13b-hf codellama/CodeLlama-13b-Instruct-hf",
     "llama", (40, 5120, 40, 40, None, 13824, 32016, 16384, False), 13_016_028_160, {}),
    ("codellama/CodeLlama-34b-hf codellama/CodeLlama-34b-Instruct-hf",
     "llama", (48, 8192, 64, 8, None, 22016, 32000, 16384, False), 33_743_970_304, {}),
    ("meta-llama/Meta-Llama-3-8B meta-llama/Meta-Llama-3-8B-Instruct NousResearch/Meta-Llama-3-8B NousResearch/Meta-Llama-3-8B-Instruct",
     "llama", (32, 4096, 32, 8, None, 14336, 128256, 8192, False), 8_030_261_248, {}),
    ("meta-llama/Meta-Llama-3-70B meta-llama/Meta-Llama-3-70B-Instruct",
     "llama", (80, 8192, 64, 8, None, 28672, 128256, 8192, False), 70_553_706_496, {}),
    ("meta-llama/Llama-3.1-8B meta-llama/Llama-3.1-8B-Instruct meta-llama/Meta-Llama-3.1-8B meta-llama/Meta-Llama-3.1-8B-Instruct "
     "unsloth/Meta-Llama-3.1-8B unsloth/Meta-Llama-3.1-8B-Instruct unsloth/Llama-3.1-8B-Instruct "
     "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
     "llama", (32, 4096, 32, 8, None, 14336, 128256, 131072, False), 8_030_261_248, {}),
    ("meta-llama/Llama-3.1-70B meta-llama/Llama-3.1-70B-Instruct meta-llama/Llama-3.3-70B-Instruct "
     "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
     "llama", (80, 8192, 64, 8, None, 28672, 128256, 131072, False), 70_553_706_496, {}),
    ("meta-llama/Llama-3.1-405B meta-llama/Llama-3.1-405B-Instruct",
     "llama", (126, 16384, 128, 8, None, 53248, 128256, 131072, False), 405_853_388_800, {}),
    ("meta-llama/Llama-3.2-1B meta-llama/Llama-3.2-1B-Instruct unsloth/Llama-3.2-1B unsloth/Llama-3.2-1B-Instruct",
     "llama", (16, 2048, 32, 8, 64, 8192, 128256, 131072, True), 1_235_814_400, {}),
    ("meta-llama/Llama-3.2-3B meta-llama/Llama-3.2-3B-Instruct unsloth/Llama-3.2-3B unsloth/Llama-3.2-3B-Instruct",
     "llama", (28, 3072, 24, 8, 128, 8192, 128256, 131072, True), 3_212_749_824, {}),
    # built like Llama
    ("TinyLlama/TinyLlama-1.1B-Chat-v1.0 TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T",
     "llama", (22, 2048, 32, 4, None, 5632, 32000, 2048, False), 1_100_048_384, {}),
    ("openlm-research/open_llama_3b openlm-research/open_llama_3b_v2",
     "llama", (26, 3200, 32, 32, None, 8640, 32000, 2048, False), 3_426_473_600, {}),
    ("openlm-research/open_llama_7b openlm-research/open_llama_7b_v2",
     "llama", (32, 4096, 32, 32, None, 11008, 32000, 2048, False), 6_738_415_616, {}),
    ("HuggingFaceTB/SmolLM-135M HuggingFaceTB/SmolLM-135M-Instruct",
     "llama", (30, 576, 9, 3, None, 1536, 49152, 2048, True), 134_515_008, {}),
    ("HuggingFaceTB/SmolLM2-135M HuggingFaceTB/SmolLM2-135M-Instruct",
     "llama", (30, 576, 9, 3, None, 1536, 49152, 8192, True), 134_515_008, {}),
    ("HuggingFaceTB/SmolLM-360M HuggingFaceTB/SmolLM-360M-Instruct",
     "llama", (32, 960, 15, 5, None, 2560, 49152, 2048, True), 361_821_120, {}),
    ("HuggingFaceTB/SmolLM2-360M HuggingFaceTB/SmolLM2-360M-Instruct",
     "llama", (32, 960, 15, 5, None, 2560, 49152, 8192, True), 361_821_120, {}),
    ("HuggingFaceTB/SmolLM-1.7B HuggingFaceTB/SmolLM-1.7B-Instruct",
     "llama", (24, 2048, 32, 32, None, 8192, 49152, 2048, True), 1_711_376_384, {}),
    ("HuggingFaceTB/SmolLM2-1.7B HuggingFaceTB/SmolLM2-1.7B-Instruct",
     "llama", (24, 2048, 32, 32, None, 8192, 49152, 8192, True), 1_711_376_384, {}),
    ("HuggingFaceTB/SmolLM3-3B", "smollm3", (36, 2048, 16, 4, None, 11008, 128256, 65536, True), 3_075_098_624, {}),
    ("01-ai/Yi-6B", "llama", (32, 4096, 32, 4, None, 11008, 64000, 4096, False), 6_061_035_520, {}),
    ("01-ai/Yi-34B", "llama", (60, 7168, 56, 8, None, 20480, 64000, 4096, False), 34_388_917_248, {}),
    ("01-ai/Yi-1.5-6B 01-ai/Yi-1.5-6B-Chat", "llama", (32, 4096, 32, 4, None, 11008, 64000, 4096, False), 6_061_035_520, {}),
    ("01-ai/Yi-1.5-9B 01-ai/Yi-1.5-9B-Chat", "llama", (48, 4096, 32, 4, None, 11008, 64000, 4096, False), 8_829_407_232, {}),
    ("01-ai/Yi-1.5-34B 01-ai/Yi-1.5-34B-Chat", "llama", (60, 7168, 56, 8, None, 20480, 64000, 4096, False), 34_388_917_248, {}),
    ("upstage/SOLAR-10.7B-v1.0 upstage/SOLAR-10.7B-Instruct-v1.0",
     "llama", (48, 4096, 32, 8, None, 14336, 32000, 4096, False), 10_731_524_096, {}),
    ("deepseek-ai/deepseek-llm-7b-base deepseek-ai/deepseek-llm-7b-chat",
     "llama", (30, 4096, 32, 32, None, 11008, 102400, 4096, False), 6_910_365_696, {}),
    ("deepseek-ai/deepseek-coder-1.3b-base deepseek-ai/deepseek-coder-1.3b-instruct",
     "llama", (24, 2048, 16, 16, None, 5504, 32256, 16384, False), 1_346_471_936, {}),
    ("deepseek-ai/deepseek-coder-6.7b-base deepseek-ai/deepseek-coder-6.7b-instruct",
     "llama", (32, 4096, 32, 32, None, 11008, 32256, 16384, False), 6_740_512_768, {}),
    ("deepseek-ai/deepseek-coder-33b-base deepseek-ai/deepseek-coder-33b-instruct",
     "llama", (62, 7168, 56, 8, None, 19200, 32256, 16384, False), 33_342_991_360, {}),
    ("tiiuae/Falcon3-7B-Base tiiuae/Falcon3-7B-Instruct", "llama", (28, 3072, 12, 4, 256, 23040, 131072, 32768, False), 7_455_550_464, {}),
    ("tiiuae/Falcon3-10B-Base tiiuae/Falcon3-10B-Instruct",
     "llama", (40, 3072, 12, 4, 256, 23040, 131072, 32768, False), 10_305_653_760, {}),
    # Mistral AI
    ("mistralai/Mistral-7B-v0.1 mistralai/Mistral-7B-Instruct-v0.1 HuggingFaceH4/zephyr-7b-beta HuggingFaceH4/mistral-7b-sft-beta",
     "mistral", (32, 4096, 32, 8, None, 14336, 32000, 32768, False), 7_241_732_096, _WINDOW_4K),
    ("teknium/OpenHermes-2.5-Mistral-7B Open-Orca/Mistral-7B-OpenOrca",
     "mistral", (32, 4096, 32, 8, None, 14336, 32002, 32768, False), 7_241_748_480, _WINDOW_4K),
    ("mistralai/Mistral-7B-Instruct-v0.2",
     "mistral", (32, 4096, 32, 8, None, 14336, 32000, 32768, False), 7_241_732_096, {"sliding_window": None}),
    ("mistralai/Mistral-7B-v0.3 mistralai/Mistral-7B-Instruct-v0.3 unsloth/mistral-7b-v0.3 unsloth/mistral-7b-instruct-v0.3",
     "mistral", (32, 4096, 32, 8, None, 14336, 32768, 32768, False), 7_248_023_552, {"sliding_window": None}),
    ("mistralai/Mistral-Small-24B-Base-2501 mistralai/Mistral-Small-24B-Instruct-2501",
     "mistral", (40, 5120, 32, 8, 128, 32768, 131072, 32768, False), 23_572_403_200, {"sliding_window": None}),
    ("mistralai/Mixtral-8x7B-v0.1 mistralai/Mixtral-8x7B-Instruct-v0.1 NousResearch/Nous-Hermes-2-Mixtral-8x7B-DPO",
     "mixtral", (32, 4096, 32, 8, None, 14336, 32000, 32768, False), 46_702_792_704, _MIXTRAL),
    ("mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral", (56, 6144, 48, 8, None, 16384, 32768, 65536, False), 140_630_071_296, _MIXTRAL),
    # Qwen
    ("Qwen/Qwen1.5-0.5B Qwen/Qwen1.5-0.5B-Chat", "qwen2", (24, 1024, 16, 16, None, 2816, 151936, 32768, True), 463_987_712, {}),
    ("Qwen/Qwen1.5-1.8B Qwen/Qwen1.5-1.8B-Chat", "qwen2", (24, 2048, 16, 16, None, 5504, 151936, 32768, False), 1_836_828_672, {}),
    ("Qwen/Qwen1.5-7B Qwen/Qwen1.5-7B-Chat", "qwen2", (32, 4096, 32, 32, None, 11008, 151936, 32768, False), 7_721_324_544, {}),
    ("Qwen/Qwen2-0.5B", "qwen2", (24, 896, 14, 2, None, 4864, 151936, 131072, True), 494_032_768, {}),
    ("Qwen/Qwen2-0.5B-Instruct Qwen/Qwen2.5-0.5B Qwen/Qwen2.5-0.5B-Instruct Qwen/Qwen2.5-Coder-0.5B-Instruct unsloth/Qwen2.5-0.5B "
     "unsloth/Qwen2.5-0.5B-Instruct", "qwen2", (24, 896, 14, 2, None, 4864, 151936, 32768, True), 494_032_768, {}),
    ("Qwen/Qwen2-1.5B Qwen/Qwen2.5-1.5B", "qwen2", (28, 1536, 12, 2, None, 8960, 151936, 131072, True), 1_543_714_304, {}),
    ("Qwen/Qwen2-1.5B-Instruct Qwen/Qwen2.5-1.5B-Instruct Qwen/Qwen2.5-Coder-1.5B-Instruct unsloth/Qwen2.5-1.5B-Instruct",
     "qwen2", (28, 1536, 12, 2, None, 8960, 151936, 32768, True), 1_543_714_304, {}),
    ("Qwen/Qwen2.5-Math-1.5B", "qwen2", (28, 1536, 12, 2, None, 8960, 151936, 4096, True), 1_543_714_304, {}),
    ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "qwen2", (28, 1536, 12, 2, None, 8960, 151936, 131072, False), 1_777_088_000, {}),
    ("Qwen/Qwen2.5-3B Qwen/Qwen2.5-3B-Instruct Qwen/Qwen2.5-Coder-3B-Instruct unsloth/Qwen2.5-3B-Instruct",
     "qwen2", (36, 2048, 16, 2, None, 11008, 151936, 32768, True), 3_085_938_688, {}),
    ("Qwen/Qwen2-7B Qwen/Qwen2.5-7B deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
     "qwen2", (28, 3584, 28, 4, None, 18944, 152064, 131072, False), 7_615_616_512, {}),
    ("Qwen/Qwen2-7B-Instruct Qwen/Qwen2.5-7B-Instruct Qwen/Qwen2.5-Coder-7B-Instruct unsloth/Qwen2.5-7B-Instruct",
     "qwen2", (28, 3584, 28, 4, None, 18944, 152064, 32768, False), 7_615_616_512, {}),
    ("Qwen/Qwen2.5-Math-7B Qwen/Qwen2.5-Math-7B-Instruct", "qwen2", (28, 3584, 28, 4, None, 18944, 152064, 4096, False), 7_615_616_512, {}),
    ("Qwen/Qwen2.5-14B deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
     "qwen2", (48, 5120, 40, 8, None, 13824, 152064, 131072, False), 14_770_033_664, {}),
    ("Qwen/Qwen2.5-14B-Instruct Qwen/Qwen2.5-Coder-14B-Instruct unsloth/Qwen2.5-14B-Instruct",
     "qwen2", (48, 5120, 40, 8, None, 13824, 152064, 32768, False), 14_770_033_664, {}),
    ("Qwen/Qwen2.5-32B deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
     "qwen2", (64, 5120, 40, 8, None, 27648, 152064, 131072, False), 32_763_876_352, {}),
    ("Qwen/Qwen2.5-32B-Instruct Qwen/Qwen2.5-Coder-32B-Instruct",
     "qwen2", (64, 5120, 40, 8, None, 27648, 152064, 32768, False), 32_763_876_352, {}),
    ("Qwen/Qwen2-72B Qwen/Qwen2.5-72B", "qwen2", (80, 8192, 64, 8, None, 29568, 152064, 131072, False), 72_706_203_648, {}),
    ("Qwen/Qwen2-72B-Instruct Qwen/Qwen2.5-72B-Instruct",
     "qwen2", (80, 8192, 64, 8, None, 29568, 152064, 32768, False), 72_706_203_648, {}),
    ("Qwen/Qwen3-0.6B", "qwen3", (28, 1024, 16, 8, 128, 3072, 151936, 40960, True), 596_049_920, {}),
    ("Qwen/Qwen3-0.6B-Base", "qwen3", (28, 1024, 16, 8, 128, 3072, 151936, 32768, True), 596_049_920, {}),
    ("Qwen/Qwen3-1.7B", "qwen3", (28, 2048, 16, 8, 128, 6144, 151936, 40960, True), 1_720_574_976, {}),
    ("Qwen/Qwen3-1.7B-Base", "qwen3", (28, 2048, 16, 8, 128, 6144, 151936, 32768, True), 1_720_574_976, {}),
    ("Qwen/Qwen3-4B", "qwen3", (36, 2560, 32, 8, 128, 9728, 151936, 40960, True), 4_022_468_096, {}),
    ("Qwen/Qwen3-4B-Base", "qwen3", (36, 2560, 32, 8, 128, 9728, 151936, 32768, True), 4_022_468_096, {}),
    ("Qwen/Qwen3-4B-Instruct-2507 Qwen/Qwen3-4B-Thinking-2507",
     "qwen3", (36, 2560, 32, 8, 128, 9728, 151936, 262144, True), 4_022_468_096, {}),
    ("Qwen/Qwen3-8B", "qwen3", (36, 4096, 32, 8, 128, 12288, 151936, 40960, False), 8_190_735_360, {}),
    ("Qwen/Qwen3-8B-Base", "qwen3", (36, 4096, 32, 8, 128, 12288, 151936, 32768, False), 8_190_735_360, {}),
    ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "qwen3", (36, 4096, 32, 8, 128, 12288, 151936, 131072, False), 8_190_735_360, {}),
    ("Qwen/Qwen3-14B", "qwen3", (40, 5120, 40, 8, 128, 17408, 151936, 40960, False), 14_768_307_200, {}),
    ("Qwen/Qwen3-14B-Base", "qwen3", (40, 5120, 40, 8, 128, 17408, 151936, 32768, False), 14_768_307_200, {}),
    ("Qwen/Qwen3-32B", "qwen3", (64, 5120, 64, 8, 128, 25600, 151936, 40960, False), 32_762_123_264, {}),
    ("Qwen/Qwen3-30B-A3B", "qwen3_moe", (48, 2048, 32, 4, 128, 6144, 151936, 40960, False), 30_532_122_624,
     {"moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8}),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507 Qwen/Qwen3-30B-A3B-Thinking-2507 Qwen/Qwen3-Coder-30B-A3B-Instruct",
     "qwen3_moe", (48, 2048, 32, 4, 128, 6144, 151936, 262144, False), 30_532_122_624,
     {"moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8}),
    ("Qwen/Qwen3-235B-A22B", "qwen3_moe", (94, 4096, 64, 4, 128, 12288, 151936, 40960, False), 235_093_634_560,
     {"moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8}),
    # Google Gemma
    ("google/gemma-2b google/gemma-2b-it unsloth/gemma-2b", "gemma", (18, 2048, 8, 1, 256, 16384, 256000, 8192, True), 2_506_172_416, {}),
    ("google/gemma-7b google/gemma-7b-it unsloth/gemma-7b", "gemma", (28, 3072, 16, 16, 256, 24576, 256000, 8192, True), 8_537_680_896, {}),
    ("google/gemma-2-2b google/gemma-2-2b-it unsloth/gemma-2-2b-it",
     "gemma2", (26, 2304, 8, 4, 256, 9216, 256000, 8192, True), 2_614_341_888, _WINDOW_4K),
    ("google/gemma-2-9b google/gemma-2-9b-it unsloth/gemma-2-9b-it",
     "gemma2", (42, 3584, 16, 8, 256, 14336, 256000, 8192, True), 9_241_705_984, _WINDOW_4K),
    ("google/gemma-2-27b google/gemma-2-27b-it", "gemma2", (46, 4608, 32, 16, 128, 36864, 256000, 8192, True), 27_227_128_320, _WINDOW_4K),
    ("google/gemma-3-270m google/gemma-3-270m-it", "gemma3_text", (18, 640, 4, 1, 256, 2048, 262144, 32768, True), 268_098_176, _GEMMA3),
    ("google/gemma-3-1b-pt google/gemma-3-1b-it", "gemma3_text", (26, 1152, 4, 1, 256, 6912, 262144, 32768, True), 999_885_952, _GEMMA3),
    # Microsoft Phi
    ("microsoft/phi-1 microsoft/phi-1_5", "phi", (24, 2048, 32, 32, None, 8192, 51200, 2048, False), 1_418_270_720, {}),
    ("microsoft/phi-2", "phi", (32, 2560, 32, 32, None, 10240, 51200, 2048, False), 2_779_683_840, {}),
    ("microsoft/Phi-3-mini-4k-instruct",
     "phi3", (32, 3072, 32, 32, None, 8192, 32064, 4096, False), 3_821_079_552, {"sliding_window": 2047}),
    ("microsoft/Phi-3-mini-128k-instruct microsoft/Phi-3.5-mini-instruct",
     "phi3", (32, 3072, 32, 32, None, 8192, 32064, 131072, False), 3_821_079_552, {"sliding_window": 262144}),
    ("microsoft/Phi-3-medium-4k-instruct",
     "phi3", (40, 5120, 40, 10, None, 17920, 32064, 4096, False), 13_960_238_080, {"sliding_window": 2047}),
    ("microsoft/phi-4", "phi3", (40, 5120, 40, 10, None, 17920, 100352, 16384, False), 14_659_507_200, {}),
    ("microsoft/Phi-4-mini-instruct",
     "phi3", (32, 3072, 24, 8, None, 8192, 200064, 131072, True), 3_836_021_760, {"sliding_window": 262144}),
    # DeepSeek with latent attention
    ("deepseek-ai/DeepSeek-V2-Lite deepseek-ai/DeepSeek-V2-Lite-Chat",
     "deepseek_v2", (27, 2048, 16, 16, None, 10944, 102400, 163840, False), 15_706_484_224, _DEEPSEEK_V2_LITE),
    ("deepseek-ai/DeepSeek-V3 deepseek-ai/DeepSeek-R1 deepseek-ai/DeepSeek-V3-0324 deepseek-ai/DeepSeek-R1-0528",
     "deepseek_v3", (61, 7168, 128, 128, None, 18432, 129280, 163840, False), 671_026_404_352, _DEEPSEEK_V3),
    # from before Llama
    ("gpt2 openai-community/gpt2", "gpt2", (12, 768, 12, 12, None, 3072, 50257, 1024, True), 124_439_808, {}),
    ("distilgpt2 distilbert/distilgpt2", "gpt2", (6, 768, 12, 12, None, 3072, 50257, 1024, True), 81_912_576, {}),
    ("gpt2-medium openai-community/gpt2-medium", "gpt2", (24, 1024, 16, 16, None, 4096, 50257, 1024, True), 354_823_168, {}),
    ("gpt2-large openai-community/gpt2-large", "gpt2", (36, 1280, 20, 20, None, 5120, 50257, 1024, True), 774_030_080, {}),
    ("gpt2-xl openai-community/gpt2-xl", "gpt2", (48, 1600, 25, 25, None, 6400, 50257, 1024, True), 1_557_611_200, {}),
    ("facebook/opt-125m", "opt", (12, 768, 12, 12, None, 3072, 50272, 2048, True), 125_239_296, {}),
    ("facebook/opt-1.3b", "opt", (24, 2048, 32, 32, None, 8192, 50272, 2048, True), 1_315_758_080, {}),
    ("facebook/opt-2.7b", "opt", (32, 2560, 32, 32, None, 10240, 50272, 2048, True), 2_651_596_800, {}),
    ("facebook/opt-6.7b", "opt", (32, 4096, 32, 32, None, 16384, 50272, 2048, True), 6_658_473_984, {}),
    ("facebook/opt-13b", "opt", (40, 5120, 40, 40, None, 20480, 50272, 2048, True), 12_853_473_280, {}),
    ("EleutherAI/pythia-70m EleutherAI/pythia-70m-deduped", "gpt_neox", (6, 512, 8, 8, None, 2048, 50304, 2048, False), 70_426_624, {}),
    ("EleutherAI/pythia-160m EleutherAI/pythia-160m-deduped",
     "gpt_neox", (12, 768, 12, 12, None, 3072, 50304, 2048, False), 162_322_944, {}),
    ("EleutherAI/pythia-410m EleutherAI/pythia-410m-deduped",
     "gpt_neox", (24, 1024, 16, 16, None, 4096, 50304, 2048, False), 405_334_016, {}),
    ("EleutherAI/pythia-1b EleutherAI/pythia-1b-deduped", "gpt_neox", (16, 2048, 8, 8, None, 8192, 50304, 2048, False), 1_011_781_632, {}),
    ("EleutherAI/pythia-1.4b EleutherAI/pythia-1.4b-deduped",
     "gpt_neox", (24, 2048, 16, 16, None, 8192, 50304, 2048, False), 1_414_647_808, {}),
    ("EleutherAI/pythia-2.8b EleutherAI/pythia-2.8b-deduped",
     "gpt_neox", (32, 2560, 32, 32, None, 10240, 50304, 2048, False), 2_775_208_960, {}),
    ("EleutherAI/pythia-6.9b EleutherAI/pythia-6.9b-deduped",
     "gpt_neox", (32, 4096, 32, 32, None, 16384, 50432, 2048, False), 6_857_302_016, {}),
    ("EleutherAI/pythia-12b EleutherAI/pythia-12b-deduped",
     "gpt_neox", (36, 5120, 40, 40, None, 20480, 50688, 2048, False), 11_846_072_320, {}),
    ("EleutherAI/gpt-neox-20b", "gpt_neox", (44, 6144, 64, 64, None, 24576, 50432, 2048, False), 20_554_567_680, {}),
)
# fmt: on
_OWN_NAMES: Mapping[str, Mapping[str, str]] = {
    "gpt2": {
        "num_hidden_layers": "n_layer",
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
    },
    "opt": {"intermediate_size": "ffn_dim"},
}
"""Fields of `config.json` with another name in a family."""


def known_models() -> tuple[str, ...]:
    """Hugging Face names, in their authors' spelling."""
    return tuple(name for row in _TABLE for name in row[0].split())


def known_config(name: str) -> dict[str, Any] | None:
    """The fields of a model's `config.json` that planning needs; None for a model that is not in the table. Names match in any case, as on
    the hub, and may begin with hf://.
    """
    return _CONFIGS.get(hub_name(name).lower())


def published_parameters(name: str) -> int:
    """The number of parameters on the model's page. Raises KeyError for a model that is not in the table."""
    return _PARAMETERS[name.lower()]


def _config(model_type: str, dimensions: _Dimensions, more: Mapping[str, Any]) -> dict[str, Any]:
    own = _OWN_NAMES.get(model_type, {})
    values = {own.get(column, column): value for column, value in zip(_COLUMNS, dimensions, strict=True) if value is not None}
    return {"model_type": model_type, **values, **more}


_CONFIGS = {
    name.lower(): _config(model_type, dimensions, more) for names, model_type, dimensions, _, more in _TABLE for name in names.split()
}
_PARAMETERS = {name.lower(): parameters for names, _, _, parameters, _ in _TABLE for name in names.split()}
