"""A model without weights: config.json of a small Llama, and a byte-level BPE tokenizer trained on the model's training text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.data.chat import DEFAULT_TEMPLATE

_SPECIAL = ["<|end|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>"]
MAX_POSITIONS = 2048


@dataclass(frozen=True, kw_only=True)
class SmallLlama:
    """The shape of a Llama with grouped-query attention, tied embeddings and fp32 weights. `vocabulary`: maximum number of tokens.

    `digits_per_token`: numbers are cut from the left into groups of at most this many digits, and groups are never merged (Llama 3: three);
    None: digits merge like other bytes. `initializer_range`: standard deviation of random weights. 0.02 suits models many times wider; it
    leaves the attention of a narrow model flat for hundreds of steps.
    """

    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    digits_per_token: int | None = None
    initializer_range: float = 0.02

    def to_config(self, vocabulary: int) -> dict[str, Any]:
        """The content of config.json for transformers. `vocabulary`: number of tokens of the tokenizer."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.hidden // self.heads,
            "vocab_size": vocabulary,
            "max_position_embeddings": MAX_POSITIONS,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": True,
            "attention_bias": False,
            "mlp_bias": False,
            "initializer_range": self.initializer_range,
            "dtype": "float32",
        }


def write_model(folder: Path, shape: SmallLlama, texts: Iterable[str]) -> None:
    """Write config.json, generation_config.json, tokenizer.json and tokenizer_config.json. No weights: `model.init: scratch` draws them."""
    tokenizer = _trained_tokenizer(shape, texts)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    end, pad = tokenizer.token_to_id("<|end|>"), tokenizer.token_to_id("<|pad|>")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|end|>",
        "pad_token": "<|pad|>",
        "model_max_length": MAX_POSITIONS,
        "clean_up_tokenization_spaces": False,
        "chat_template": DEFAULT_TEMPLATE,
    }
    ids = {"bos_token_id": None, "eos_token_id": end, "pad_token_id": pad}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    (folder / "config.json").write_text(json.dumps({**shape.to_config(tokenizer.get_vocab_size()), **ids}, indent=2))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end, "pad_token_id": pad}, indent=2))


def _trained_tokenizer(shape: SmallLlama, texts: Iterable[str]) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = words
    if shape.digits_per_token is not None:
        numbers = pre_tokenizers.Split(Regex(rf"\p{{N}}{{1,{shape.digits_per_token}}}"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([numbers, words])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.vocabulary, special_tokens=_SPECIAL, initial_alphabet=words.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
