"""Sequence parallelism leaves less for backward on each rank."""

from __future__ import annotations

from tests.ranks.saved_activations import saved_bytes

SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 64,
}


def test_slices_of_the_tokens_leave_less_for_backward() -> None:
    whole, sliced = (saved_bytes(SHAPE, 128, 2, sequence=sequence) for sequence in (False, True))

    assert sliced < 0.95 * whole
