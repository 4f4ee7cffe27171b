"""Models that are no language models: their tokens see the tokens after them, or they read more than their own text. Source: transformers
5.19, by tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api import BadInput


class GeneratesNothing(BadInput):
    """The model is an encoder, or the decoder of one: no KV cache, and no engine that generates with it."""


# fmt: off
_ENCODERS = frozenset(
    {
        "bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert", "reformer", "rembert",
        "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta", "xlm-roberta-xl", "xmod",
    }
)
_OF_OTHER_MODELS = frozenset(
    {
        "bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "git", "marian", "mbart", "mvp", "pegasus", "plbart", "prophetnet",
        "trocr", "whisper",
    }
)
"""Decoders that read an encoder's output. They can be loaded alone, but their loss compares each token with itself: they learn to copy."""
_NEVER_ALONE = frozenset(
    {
        "fsmt", "led", "longt5", "m2m_100", "mt5", "nllb-moe", "pegasus_x", "pix2struct", "seamless_m4t", "speech_to_text",
        "switch_transformers", "t5", "t5gemma", "t5gemma2", "udop", "umt5",
    }
)
"""Encoders with decoders that cannot be loaded alone. A config.json may leave `is_encoder_decoder` out: true is their default."""
# fmt: on


def refuse_encoders(values: Mapping[str, Any]) -> None:
    """Raises GeneratesNothing for the configuration of an encoder, and of an encoder with a decoder."""
    kind, advice = values.get("model_type"), "use a decoder-only language model: Llama, Qwen, Gemma, GPT-2 and others"
    if values.get("is_encoder_decoder") or kind in _NEVER_ALONE:
        raise GeneratesNothing(f"a {kind} model has an encoder beside its decoder, which reads a separate text", advice)
    if kind in _OF_OTHER_MODELS:
        raise GeneratesNothing(
            f"a {kind} model is the decoder of another model: it reads an encoder's output for a text, an image or a sound", advice
        )
    if kind in _ENCODERS and not values.get("is_decoder"):
        raise GeneratesNothing(f"a {kind} model is an encoder: each token sees the tokens after it, which it would have to predict", advice)
