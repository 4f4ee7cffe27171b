"""`tuneyard export`: a finished model in the form that llama.cpp and Ollama read, or nothing is written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.builders.models import CHAT_TEMPLATE, write_model
from tests.builders.tokenizer_kinds import KINDS
from tests.integration.training.conftest import Material
from tests.integration.training.test_merge_command import trained
from tokenizers import Tokenizer, decoders, models, normalizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    set_seed,
)

from tuneyard.cli import main
from tuneyard.training.export.architectures import ARCHITECTURES

Export = Callable[..., tuple[int, str, str]]
SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
LLAMA_3 = {
    "rope_theta": 500000.0,
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@pytest.fixture
def export(capsys: pytest.CaptureFixture[str]) -> Export:
    """`tuneyard export …`: exit code, stdout and stderr."""

    def run(*argv: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["export", *map(str, argv)])
        return code, *capsys.readouterr()

    return run


def with_bytes() -> Any:
    """A tokenizer as SentencePiece makes it: BPE whose merges follow the order of its tokens, with bytes for what it does not know."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    texts = ["the cat sat on a mat, it's here", "def f(x): return x + 1", "steps away from the quick brown fox"] * 40
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False))
    told = json.loads(backend.to_str())
    told["added_tokens"] = [token for token in told["added_tokens"] if not token["content"].startswith("<0x")]
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(told)), unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def model_of(folder: Path, config: Any, tokenizer: Any, chat_template: str | None = None) -> Path:
    """A model with random weights, whose embedding has more rows than the tokenizer has tokens."""
    set_seed(3)
    config.vocab_size, config.eos_token_id = len(tokenizer) + 9, tokenizer.eos_token_id
    config.bos_token_id = config.pad_token_id = None
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():  # random weights are small, and biases 0: answers would hang on neither
            weight.copy_(torch.randn_like(weight) * (0.2 if weight.ndim > 1 else 0.5) + (weight if "norm" in name else 0))
    model.save_pretrained(folder)
    tokenizer.chat_template = chat_template
    tokenizer.save_pretrained(folder)
    return folder


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "llama, digits": (lambda: LlamaConfig(**SHAPE, attention_bias=True), KINDS["digits"], "f32"),
    "llama 3": (lambda: LlamaConfig(**SHAPE, rope_parameters=LLAMA_3, tie_word_embeddings=True), KINDS["llama-3"], "f16"),
    "mistral": (lambda: MistralConfig(**SHAPE, sliding_window=128, max_position_embeddings=512), with_bytes, "bf16"),
    "qwen 2": (lambda: Qwen2Config(**SHAPE), KINDS["qwen-2"], "q8_0"),
    "qwen 3": (lambda: Qwen3Config(**SHAPE, head_dim=32), KINDS["gpt-2"], "f32"),
    "gemma 3": (lambda: Gemma3TextConfig(**SHAPE, head_dim=16, query_pre_attn_scalar=16, sliding_window=16), with_bytes, "f32"),
}


@pytest.mark.parametrize("case", CASES)
def test_llama_cpp_answers_as_transformers_does(case: str, export: Export, tmp_path: Path) -> None:
    config, tokenizer, kind = CASES[case]
    folder = model_of(tmp_path / "model", config(), tokenizer(), CHAT_TEMPLATE if kind == "f16" else None)

    code, out, err = export(folder, "--format", "gguf", "--quantize", kind, "--out", tmp_path / "made")

    assert code == 0, err
    assert out.splitlines() == [str(tmp_path / "made")]
    assert "greedy tokens are those of transformers" in err
    (file,) = (tmp_path / "made").glob("*.gguf")
    assert file.name == f"made-{kind}.gguf"
    reader = gguf.GGUFReader(file)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    embedding = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    assert stored["token_embd.weight"].tensor_type.name == kind.upper()
    read = gguf.quants.dequantize(stored["token_embd.weight"].data, stored["token_embd.weight"].tensor_type)
    np.testing.assert_allclose(read, embedding.float().numpy(), atol={"f32": 0, "f16": 1e-3, "bf16": 8e-3, "q8_0": 1e-2}[kind])
    assert reader.fields[f"{reader.fields['general.architecture'].contents()}.context_length"].contents() == {
        "mistral": 128,
        "llama 3": 2048,
        "llama, digits": 2048,
        "gemma 3": 131072,
    }.get(case, 32768)


def test_an_adapter_goes_to_ollama_with_its_template_and_its_end(material: Material, export: Export, tmp_path: Path) -> None:
    run = trained(tmp_path, material, {"lora": {"rank": 4}})

    code, _, err = export(run, "--format", "ollama", "--out", tmp_path / "bot")

    assert code == 0, err
    assert "merged = adapter, " in err
    written = (tmp_path / "bot" / "Modelfile").read_text()
    assert written.startswith('FROM ./bot-f32.gguf\nTEMPLATE """{{ range .Messages }}')
    assert '{{ else if eq .Role "user" }}<|user|>{{ .Content }}<|end|>{{ else if' in written
    assert 'PARAMETER stop "<|end|>"' in written
    assert export(run, "--format", "merged", "--out", tmp_path / "merged")[0] == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "merged")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "the cat sat"}], add_generation_prompt=True)["input_ids"]
    prompts = [chat, tokenizer("the cat sat on")["input_ids"], tokenizer("over two hills")["input_ids"]]
    asked = {"texts": [], "prompts": prompts, "predict": 24, "chats": [], "answer": str(tmp_path / "answer.json")}
    command = [sys.executable, "-m", "tuneyard.training.export.llama_cpp", str(tmp_path / "bot" / "bot-f32.gguf")]
    subprocess.run(command, input=json.dumps(asked), text=True, check=True, capture_output=True)
    for prompt, said in zip(prompts, json.loads((tmp_path / "answer.json").read_text())["prompts"], strict=True):
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[0, len(prompt) :].tolist()
        assert [at["token"] for at in said] == expected


def test_a_file_that_computes_something_else_is_not_written(export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of queries and keys is wrong here."""
    monkeypatch.setitem(ARCHITECTURES, "LlamaForCausalLM", replace(ARCHITECTURES["LlamaForCausalLM"], change=None))
    folder = model_of(tmp_path / "model", LlamaConfig(**SHAPE), KINDS["gpt-2"]())

    code, out, err = export(folder, "--format", "gguf", "--out", tmp_path / "made")

    assert (code, out) == (1, "")
    assert "llama.cpp computes other answers than transformers: log-probabilities differ by" in err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_cannot_be_exported_is_refused(material: Material, export: Export, tmp_path: Path) -> None:
    other = write_model(tmp_path / "gpt2", "gpt2")
    unigram = model_of(tmp_path / "unigram", LlamaConfig(**SHAPE), KINDS["unigram"]())
    split = model_of(tmp_path / "split", LlamaConfig(**SHAPE), KINDS["unknown pattern"]())
    relu = model_of(tmp_path / "relu", LlamaConfig(**SHAPE, hidden_act="relu"), KINDS["gpt-2"]())

    for folder, options, words, step in [
        (other, (), "GPT2LMHeadModel cannot be exported as GGUF yet: Gemma3ForCausalLM, LlamaForCausalLM", "convert_hf_to_gguf.py"),
        (unigram, (), "a tokenizer of kind Unigram cannot be exported as GGUF yet", "--format merged"),
        (split, (), "llama.cpp has no name here for a tokenizer that splits text by", "--format merged"),
        (relu, (), "llama.cpp computes LlamaForCausalLM with silu, and this model has relu", "use vLLM"),
        (tmp_path / "nowhere", (), "there is no folder", "give the folder of a finished `tuneyard run`"),
        (material.model, ("--out", other), "is not empty", "give another folder"),
        (material.model, ("--format", "merged", "--quantize", "f16"), "--quantize is for --format gguf and ollama", "leave it out"),
    ]:
        code, out, err = export(folder, "--format", "gguf", "--out", tmp_path / "made", *options)
        assert (code, out) == (2, ""), err
        assert words in err
        assert step in err
        assert not (tmp_path / "made").exists()
