"""What is refused when a sharded model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.ranks.applied_models import Case

from tuneyard.api import BadInput
from tuneyard.parallel import load_sharded, shard_model, tensor_parallel_plan
from tuneyard.parallel.collectives import TensorGroup


def load(folder: Path, **changes: Any) -> Any:
    model = Case("llama", changes).model(meta=True)
    load_sharded(model, shard_model(model, tensor_parallel_plan(model, 2), TensorGroup(None, 1, 2)), folder)
    return model


def test_a_rank_holds_its_share_of_the_files(tmp_path: Path) -> None:
    whole = Case("llama").model()
    whole.save_pretrained(tmp_path)

    model = load(tmp_path)

    assert model.lm_head.weight.equal(whole.lm_head.weight[192:])
    assert model.model.rotary_emb.inv_freq.equal(whole.model.rotary_emb.inv_freq)


def test_files_in_parts_are_read_by_their_index(tmp_path: Path) -> None:
    whole = Case("llama").model()
    whole.save_pretrained(tmp_path, max_shard_size="100KB")

    assert load(tmp_path).model.norm.weight.equal(whole.model.norm.weight)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"has no model\.safetensors"):
        load(tmp_path)


def test_a_folder_without_the_head_is_refused(tmp_path: Path) -> None:
    Case("llama").model().model.save_pretrained(tmp_path)

    with pytest.raises(BadInput, match=r"lacks 1 weights, which would start at random: lm_head\.weight"):
        load(tmp_path)


def test_a_folder_of_other_shapes_is_refused(tmp_path: Path) -> None:
    Case("llama").model().save_pretrained(tmp_path)

    with pytest.raises(BadInput, match="has the shape"):
        load(tmp_path, intermediate_size=256)


def test_a_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    Case("llama").model().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])

    with pytest.raises(BadInput, match="no whole safetensors file"):
        load(tmp_path)
