"""The class that stands for each trait of an architecture in `make test`. Other classes of a trait are in long tests.

A trait is what plans, engines, context parallelism or rows treat in a way of their own.
"""

from __future__ import annotations

TENSOR_PARALLEL = {
    "grouped-query heads, a gated feed-forward": "llama",
    "norms of single heads": "qwen3",
    "fused blocks of unequal heads, fused gate and up": "phi3",
    "fused heads that are interleaved, biases": "gpt_neox",
    "biases by position, a residual inside of the module": "bloom",
    "one key head, attention beside the feed-forward": "falcon",
    "linears of another class, three blocks in one weight": "gpt2",
    "a number of heads that the module keeps": "gptj",
    "that number, learned positions and biases": "opt",
    "a tied head, a scaled table": "gemma",
    "capped logits": "gemma2",
    "experts": "mixtral",
    "experts beside norms of single heads": "qwen3_moe",
    "latent attention": "deepseek_v3",
    "experts between dense layers": "llama4_text",
    "an encoder with a decoder": "t5",
    "an encoder": "bert",
    "state-space layers": "mamba",
}
CONTEXT_PARALLEL = {
    "grouped-query heads": "llama",
    "norms of single heads": "qwen3",
    "norms over all heads": "olmo2",
    "a window and capped logits": "gemma2",
    "rotary positions in a part of each head": "phi",
    "fused heads": "gpt_neox",
    "learned positions": "gpt2",
    "experts": "qwen3_moe",
    "values of another width than keys": "deepseek_v3",
    "attention in chunks": "llama4_text",
}
REFUSED_ON_SLICES = {
    "lfm2": "logits of slices differ",  # short convolutions
    "jamba": "logits of slices differ",  # state-space layers
    "bloom": "cannot be built with sdpa",  # biases by position
    "falcon": "does not call transformers' attention interface",
    "doge": "fails on a slice",  # a mask of its own
}
"""With the words of the refusal."""
TRAINED = {
    "bloom": ("works", "refused", "works"),  # no positions but biases, nothing that the catalog knows
    "doge": ("works", "works", "works"),  # a class with experts, whose configuration has none
    "gemma4": ("works", "works", "works"),  # a class with vision, whose own loss is a mean of each micro-batch
    "jamba": ("works", "refused", "works"),  # state-space layers, attention and experts
    "bart": ("refused", "refused", "refused"),  # an encoder with a decoder
}
"""In full, with packed rows, with LoRA: classes that no other test trains."""
