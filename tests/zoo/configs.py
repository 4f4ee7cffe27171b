"""A tiny config of any model type, from the fields that its config class has."""

from __future__ import annotations

from typing import Any

from tests.zoo.exceptions import EXCEPTIONS

END, PAD = 0, 1
VOCAB = 384

_NAMES: dict[int, str] = {
    64: "hidden_size n_embd d_model word_embed_proj_dim embedding_size attention_hidden_size dim_model emb_dim lru_width ffn_embed_dim "
    "moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size expert_ffn_hidden_size "
    "moe_shared_expert_intermediate_size expert_intermediate_size",
    128: "intermediate_size ffn_dim n_inner decoder_ffn_dim encoder_ffn_dim intermediate_size_mlp dff dim_ff ffn_hidden_size "
    "dense_intermediate_size prefix_dense_intermediate_size",
    256: "max_position_embeddings n_positions max_seq_len original_max_position_embeddings",
    VOCAB: "vocab_size vocab_size_per_layer_input",
    32: "kv_lora_rank q_lora_rank sliding_window",
    16: "head_dim kv_channels attention_head_dim d_kv dim_head global_head_dim swa_head_dim qk_rope_head_dim qk_nope_head_dim v_head_dim "
    "qk_head_dim linear_key_head_dim linear_value_head_dim mamba_d_state state_size ssm_state_size mamba_head_dim mamba_d_head "
    "mamba_headdim mamba_chunk_size chunk_size index_head_dim index_topk indexer_head_dim index_n_heads hidden_size_per_layer_input",
    8: "mamba_dt_rank time_step_rank rotary_dim laurel_rank",
    4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads num_experts num_local_experts "
    "n_routed_experts moe_num_experts",
    2: "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers num_key_value_heads num_experts_per_tok moe_topk moe_k "
    "top_k_experts num_experts_per_token linear_num_key_heads linear_num_value_heads",
    1: "n_group topk_group first_k_dense_replace num_dense_layers n_shared_experts num_shared_experts mamba_n_groups n_groups "
    "mamba_ngroups",
    0: "num_kv_shared_layers",
}
_SIZES = {name: size for size, names in _NAMES.items() for name in names.split()}
_DROPOUTS = (
    *("resid_pdrop", "embd_pdrop", "attn_pdrop", "emb_pdrop", "dropout", "attention_dropout", "activation_dropout", "hidden_dropout"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "residual_dropout", "embedding_dropout", "layerdrop", "decoder_layerdrop"),
    *("router_jitter_noise", "input_jitter_noise", "encoder_layerdrop", "summary_first_dropout", "summary_last_dropout"),
)
_TOKENS = {"eos_token_id": END, "bos_token_id": END, "pad_token_id": PAD, "decoder_start_token_id": END}
_PER_LAYER = ("layer_types", "layers_block_type", "mlp_layer_types", "indexer_types")


_WIDE = dict.fromkeys(("hidden_size", "n_embd", "d_model"), 128) | dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), 2)
_WIDE |= {"num_key_value_heads": 1, "head_dim": 64}


def tiny_config_of(model_type: str, *, wide: bool = False) -> Any:
    """Two layers of width 64, or one layer of each kind that the architecture has; without dropout, 384 tokens. `wide`: two heads of 64."""
    from transformers import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[model_type]
    fields = _fields(config_class, model_type)
    if wide:
        fields |= {name: size for name, size in _WIDE.items() if name in fields}
    return config_class(**fields)


def _fields(config_class: Any, model_type: str) -> dict[str, Any]:
    changes = EXCEPTIONS.get(model_type, {})
    named = config_class.__dataclass_fields__
    default = config_class()
    values = default.to_dict()
    own = {name: default.__dict__.get(name, values.get(name)) for name in named if name in default.__dict__ or name in values}
    # A size of 0 stands for a part that the architecture leaves out.
    fields: dict[str, Any] = {name: size for name, size in _SIZES.items() if name in own and own[name] != 0}
    if "kv_lora_rank" in own:  # latent attention has as many heads of keys as of queries
        fields["num_key_value_heads"] = fields["num_attention_heads"]
    fields |= {name: 0.0 if own[name] is None else own[name] * 0 for name in _DROPOUTS if name in own}
    fields |= {name: token for name, token in _TOKENS.items() if name in own}
    fields |= {name: 1.0 for name in ("logit_scale", "logits_scaling") if own.get(name)}
    fields |= _layers(own)
    for name in config_class.sub_configs or {}:
        if own.get(name) is not None:
            fields[name] = _fields(type(own[name]), own[name].model_type)
    return fields | changes


def _layers(own: dict[str, Any]) -> dict[str, Any]:
    """One layer of each kind, at least two; all lists of kinds get the same length."""
    kinds = {name: list(dict.fromkeys(own[name])) for name in _PER_LAYER if isinstance(own.get(name), list) and own[name]}
    if not kinds:
        return {}
    count = max(2, *(len(found) for found in kinds.values()))
    depth = [name for name in ("num_hidden_layers", "num_layers", "n_layer") if name in own][:1]
    return dict.fromkeys(depth, count) | {name: [*found, *[found[-1]] * (count - len(found))] for name, found in kinds.items()}
