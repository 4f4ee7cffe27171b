"""A small stand-in for a downloaded model: `python benchmarks/new_user_model.py FOLDER FILE …`.

A Qwen2 shape of 0.5 million parameters with random weights, and a tokenizer that was trained on the files. Real loading code reads it
from the folder as it reads a model from the Hugging Face hub. Imports nothing of Tuneyard: any interpreter with [train] runs it.
"""

from __future__ import annotations

import sys
from pathlib import Path


def write_model(folder: Path, texts: list[Path]) -> None:
    """Weights, configuration and tokenizer in `folder`; the same at each call."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config, set_seed

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train(list(map(str, texts)), trainers.BpeTrainer(vocab_size=768, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>", model_max_length=2048)
    fast.save_pretrained(folder)
    set_seed(7)
    config = Qwen2Config(
        vocab_size=768,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=fast.eos_token_id,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


if __name__ == "__main__":
    write_model(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
