"""Rows of a micro-batch that see each other are found before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders.models import cpu_plan, train_request, train_task, write_model
from tests.integration.training.conftest import Material
from transformers.models.llama.modeling_llama import LlamaMLP
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter

from tuneyard.api import BadInput
from tuneyard.training import train

SEEN = r"rows of a micro-batch would see each other.*\n.*set batch\.micro to 1"


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In training, experts take no more than their share of the tokens and a quarter, in the order of rows (Lepikhin et al. 2020)."""
    route = MixtralTopKRouter.forward

    def with_capacity(self: Any, hidden: torch.Tensor) -> Any:
        logits, scores, chosen = route(self, hidden)
        if not self.training:
            return logits, scores, chosen
        places = torch.nn.functional.one_hot(chosen, self.num_experts).sum(dim=1).cumsum(dim=0)
        capacity = 1.25 * chosen.numel() / self.num_experts
        return logits, scores * (places.gather(1, chosen) <= capacity), chosen

    monkeypatch.setattr(MixtralTopKRouter, "forward", with_capacity)


@pytest.fixture
def centered(monkeypatch: pytest.MonkeyPatch) -> None:
    """In training, each feature has a mean of 0 over the rows, as batch normalization makes it."""
    plain = LlamaMLP.forward

    def forward(self: Any, values: torch.Tensor) -> torch.Tensor:
        return plain(self, values - values.mean(dim=0, keepdim=True) if self.training else values)

    monkeypatch.setattr(LlamaMLP, "forward", forward)


def run(folder: Path, model: Path, source: Path, micro: int, *, plan: dict[str, Any] | None = None, pack: bool = True, **task: Any) -> Any:
    data = {"source": str(source), "maxLength": 64, "pack": pack}
    layout = cpu_plan(micro_batch=micro, grad_accum=8 // micro, **(plan or {}))
    return train(train_request(folder, train_task(model, source, data=data, steps=1, **task), layout))


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("micro", [2, 8])
def test_experts_that_are_full_are_found(micro: int, material: Material, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=SEEN) as refused:
        run(tmp_path, write_model(tmp_path / "experts", "mixtral"), material.text, micro)
    assert "packed samples see samples of other rows" in str(refused.value)


@pytest.mark.usefixtures("centered")
@pytest.mark.parametrize(
    "settings",
    [{}, {"plan": {"precision": "bf16", "zero": 3}}, {"pack": False}, {"pack": False, "objective": "dpo"}],
    ids=["packed", "bf16 under ZeRO 3", "padded", "pairs"],
)
def test_statistics_over_rows_are_found(settings: dict[str, Any], material: Material, tmp_path: Path) -> None:
    source = material.preferences if "objective" in settings else material.text
    with pytest.raises(BadInput, match=SEEN):
        run(tmp_path, material.model, source, 2, **settings)


@pytest.mark.usefixtures("centered")
def test_a_micro_batch_of_one_row_has_no_other_rows(material: Material, tmp_path: Path) -> None:
    assert run(tmp_path, material.model, material.text, 1).status == "succeeded"


def test_the_test_leaves_no_trace(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics that a training pass keeps are restored, and dropout draws the same numbers."""
    passes: list[bool] = []
    plain = LlamaMLP.forward

    def counting(self: Any, values: torch.Tensor) -> torch.Tensor:
        if "seen" not in self._buffers:
            self.register_buffer("seen", torch.zeros(()), persistent=False)
        if self.training and torch.is_grad_enabled():
            passes.append(bool(self.seen))
        elif self.training:
            self.seen += 1
        return plain(self, torch.nn.functional.dropout(values, 0.5, self.training))

    monkeypatch.setattr(LlamaMLP, "forward", counting)
    losses = [run(tmp_path / f"{micro}", material.model, material.text, micro).losses for micro in (2, 2)]

    assert losses[0] == losses[1]
    assert not any(passes)
