"""`strategy.compile: layers` changes no loss, and refuses what it cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import cpu_plan, train_request, train_task
from tests.integration.training.conftest import Material
from tests.servers.installed import CACHE

from tuneyard.api import BadInput
from tuneyard.training import TrainResult, train
from tuneyard.training import compiled_layers as compiled

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def compiled_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are kept in the user's cache. torch would start a pool of processes that load torch, for a few small ones."""
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(CACHE / "inductor"))
    with config.patch(compile_threads=1):
        yield


def trained(folder: Path, material: Material, *, plan: dict[str, Any] | None = None, **task: Any) -> TrainResult:
    data = {"source": str(material.text), "maxLength": 64, "validationFraction": 0.1}
    wished = train_task(material.model, material.text, **{"data": data, "steps": 4, **task})
    return train(train_request(folder, wished, cpu_plan(**(plan or {}))))


@pytest.mark.parametrize(
    ("task", "plan"),
    [
        pytest.param({}, {}, id="full", marks=pytest.mark.long),
        pytest.param({"method": {"lora": {"rank": 4}}, "data": None}, {"recompute": True}, id="lora, recomputed, packed"),
        pytest.param({}, {"zero": 2}, id="ZeRO 2", marks=pytest.mark.long),
        pytest.param({"method": {"qlora": {"rank": 4}}}, {}, id="qlora", marks=pytest.mark.long),
        pytest.param({"method": {"lora": {"rank": 4}}}, {"recompute": True}, id="lora, recomputed", marks=pytest.mark.long),
        pytest.param({"objective": "dpo", "method": {"lora": {"rank": 4}}}, {}, id="dpo", marks=pytest.mark.long),
    ],
)
def test_losses_are_those_of_layers_that_are_not_compiled(
    task: dict[str, Any], plan: dict[str, Any], material: Material, tmp_path: Path
) -> None:
    if task.get("objective") == "dpo":
        task = {**task, "data": {"source": str(material.preferences), "maxLength": 128, "validationFraction": 0.1}}
    if "data" in task and task["data"] is None:
        task = {**task, "data": {"source": str(material.text), "maxLength": 64, "pack": True}}
    plain = trained(tmp_path / "plain", material, plan=plan, **task)

    made = trained(tmp_path / "compiled", material, plan={**plan, "compiled": True}, **task)

    assert made.losses == pytest.approx(plain.losses, rel=1e-5)
    assert [loss for _, loss in made.eval_losses] == pytest.approx([loss for _, loss in plain.eval_losses], rel=1e-5)


def test_a_model_whose_layers_cannot_be_compiled_is_refused(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_VARIANTS", 0)

    with pytest.raises(BadInput, match=r"the layers of this model cannot be compiled: they take more than 0 forms"):
        trained(tmp_path, material, plan={"compiled": True})
