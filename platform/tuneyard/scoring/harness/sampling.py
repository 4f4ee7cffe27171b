"""How a request of the harness generates: its `generation_kwargs` and the model's generation_config.json, as settings of an engine.

The harness hands both to `generate` of transformers. A setting that engines do not have is refused: its figure would be another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PLAIN = {
    "num_beams": 1,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "use_cache": True,
    "typical_p": 1.0,
    "encoder_repetition_penalty": 1.0,
    "guidance_scale": 1.0,
}
"""Settings that ask for what engines do anyway. So do all that are null, false, or 0."""
_TOP_K = 50
"""Of transformers, where sampling names none."""
_NO_EFFECT = {
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "transformers_version", "_from_model_config"),
    *("max_length", "max_new_tokens", "use_cache", "cache_implementation", "do_sample", "temperature", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "length_penalty"),
}
"""Settings of generation_config.json that the harness sets itself, that engines read too, or that `sampling_of` takes over."""


class NotPossible(ValueError):
    """A setting that engines do not have."""


def sampling_of(wished: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`temperature`, `top_p`, `top_k` (0: all tokens), `min_p` and `repetition_penalty`. `wished`: arguments of a request, as the harness
    has normalized them, without texts that end it and its length. `defaults`: generation_config.json of the model. Raises
    NotPossible."""
    asked = dict(wished)
    sample, temperature = bool(asked.pop("do_sample", False)), float(asked.pop("temperature", 0.0) or 0.0)
    drawn = {name: asked.pop(name, None) for name in ("top_p", "top_k", "min_p")}
    penalty = asked.pop("repetition_penalty", None)
    for name, value in asked.items():
        if not _is_plain(name, value):
            raise NotPossible(f"generation_kwargs ask for {name}: {value}")
    for name, value in defaults.items():
        if name not in _NO_EFFECT and not _is_plain(name, value):
            raise NotPossible(f"generation_config.json of the model asks for {name}: {value}")
    settings = {"repetition_penalty": float(_first(penalty, defaults.get("repetition_penalty"), 1.0))}
    if not sample:
        return {**settings, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
    if temperature <= 0:
        raise NotPossible("generation_kwargs ask for do_sample: true without a temperature above 0")
    return {
        **settings,
        "temperature": temperature,
        "top_p": float(_first(drawn["top_p"], defaults.get("top_p"), 1.0)),
        "top_k": int(_first(drawn["top_k"], defaults.get("top_k"), _TOP_K)),
        "min_p": float(_first(drawn["min_p"], defaults.get("min_p"), 0.0)),
    }


def _is_plain(name: str, value: Any) -> bool:
    return value in (None, False, 0, _PLAIN.get(name))


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)
