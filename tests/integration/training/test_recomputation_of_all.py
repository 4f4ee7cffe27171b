"""The proof of recomputation looks at the gradients of all weights, and under ZeRO 3 too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders.models import cpu_plan, train_request, train_task, write_model
from tests.integration.training.conftest import Material
from tests.integration.training.test_recomputation import all_weights_cut
from tests.ranks.forks import Call, called
from tests.ranks.groups import group
from transformers.models.llama.modeling_llama import LlamaMLP

from tuneyard.api import BadInput
from tuneyard.training import TrainRequest, train
from tuneyard.training.proofs import recomputation

__all__ = ["all_weights_cut"]
METHODS: dict[str, dict[str, Any]] = {"full": {"full": {}}, "lora": {"lora": {"rank": 4}}}
REFUSED = r"recomputation changes the gradient of {}.*\n.*set strategy\.recompute to false"


def request_of(folder: Path, material: Material, method: str = "full", **plan: Any) -> TrainRequest:
    task = train_task(material.model, material.text, method=METHODS[method], steps=2, optimizer={"learningRate": 1e-2, "warmup": 0})
    return train_request(folder, task, cpu_plan(**plan))


def changes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block computes something else in a backward pass, as one with a state of its own does."""
    plain = LlamaMLP.forward

    def forward(self: Any, values: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = plain(self, 2 * values if torch._C._current_graph_task_id() >= 0 else values)
        return made

    monkeypatch.setattr(LlamaMLP, "forward", forward)


@pytest.mark.usefixtures("all_weights_cut")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("plan", [{"zero": 3}, {"zero": 3, "precision": "bf16", "offload_optimizer": "cpu", "offload_parameters": "cpu"}])
def test_a_change_is_found_under_zero_3(
    plan: dict[str, Any], method: str, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes_again(monkeypatch)
    with pytest.raises(BadInput, match=REFUSED.format(r"model\.")):
        train(request_of(tmp_path, material, method, recompute=True, **plan))


@pytest.mark.usefixtures("all_weights_cut")
def test_the_proof_changes_no_step_under_zero_3(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    proof = recomputation.refuse_changed_gradients

    def counted(*args: Any, **kwargs: Any) -> int:
        compared.append(proof(*args, **kwargs))
        return compared[-1]

    monkeypatch.setattr("tuneyard.training.trainer.refuse_changed_gradients", counted)
    proven = train(request_of(tmp_path / "proven", material, zero=3, recompute=True))
    plain = train(request_of(tmp_path / "plain", material, zero=3))
    assert proven.losses == plain.losses
    assert compared == [21], "all weights of the model"


@pytest.mark.usefixtures("all_weights_cut")
def test_experts_that_zero_3_gathers_together_are_left_out(material: Material, tmp_path: Path) -> None:
    model = write_model(tmp_path / "experts", "mixtral")
    task = train_task(model, material.text, steps=1)
    assert train(train_request(tmp_path, task, cpu_plan(zero=3, recompute=True))).status == "succeeded"


def test_a_change_of_a_single_weight_is_found_where_memory_holds_all_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recomputation, "_WEIGHTS", 3)
    model = torch.nn.ModuleDict({f"{number:02}": torch.nn.Linear(8, 8, bias=False) for number in range(20)})
    calls = iter(range(4))

    def loss_of() -> torch.Tensor:
        factor = 1.0 + next(calls) % 2
        row = torch.ones(1, 8)
        return sum(((factor if name == "08" else 1.0) * layer(row)).square().sum() for name, layer in model.items())  # type: ignore[return-value]

    with pytest.raises(BadInput, match=r"gradient of 08\.weight by [0-9.]+ of its size"):
        recomputation.refuse_changed_gradients(model, loss_of, half=False, memory_bytes=1e9)
    assert recomputation.refuse_changed_gradients(model, loss_of, half=False, memory_bytes=0) == 3, "some, from first to last"


def test_two_ranks_compare_the_same_weights(material: Material, tmp_path: Path) -> None:
    """Ranks whose free memory differs would gather other weights, and wait for each other."""
    request = request_of(tmp_path, material, zero=3, recompute=True, workers=2, grad_accum=2)
    first, second = called(
        [Call(_with_memory, (request, free), place) for place, free in zip(group(2, per_machine=2), (1e9, 1.0), strict=True)]
    )
    assert first == second
    assert len(first) == 2


def _with_memory(request: TrainRequest, free: float) -> list[float]:
    from unittest.mock import patch

    import torch.distributed as dist

    dist.init_process_group("gloo")
    with patch("tuneyard.training.trainer.free_bytes", lambda _: free):
        losses = train(request).losses
    dist.destroy_process_group()
    return losses
