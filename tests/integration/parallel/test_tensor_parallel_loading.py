"""A saved model loaded in shards has the weights, buffers and logits of `from_pretrained`."""

from __future__ import annotations

from pathlib import Path

from tests.ranks.applied_models import Case
from tests.ranks.sharded_loading import differences_of_loaded


def test_every_rank_loads_its_shards_of_what_was_saved(tmp_path: Path) -> None:
    """Slices of whole weights, a tie, packed blocks, experts that are made of many weights, an encoder with a decoder."""
    cases = [Case(name) for name in ("llama", "gemma", "phi3", "mixtral", "t5")]

    assert differences_of_loaded(cases, tmp_path, 2) == {case.model_type: [] for case in cases}
