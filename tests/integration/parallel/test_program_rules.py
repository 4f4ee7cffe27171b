"""A program under a user's own sharding rules computes what it computes on one device; a rule that cannot hold is refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tests.builders.programs import program_request, program_task, write_program
from tests.ranks.groups import train_in_ranks

from tuneyard.api import BadInput, TuneyardError
from tuneyard.training import TrainRequest, train

SOURCE = """
    import torch
    from torch import nn


    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(8, 16)
            self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
            self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 2)

        def forward(self, ids):
            x = self.table(ids)
            return self.head(self.norm(x + self.down(self.up(x).relu())))


    class Wide:
        def model(self):
            return Model()

        def collate(self, rows):
            ids = torch.tensor([[int(8 * each) for each in row["x"]] for row in rows])
            return {"ids": ids, "y": torch.tensor([row["y"] for row in rows])}

        def loss(self, model, batch):
            return (model(batch["ids"]).sum((1, 2)) - batch["y"]).square().mean()
"""
RULES: dict[str, list[dict[str, str]]] = {
    "automatic": [],
    "rows first": [{"match": "up", "cut": "rows"}],
    "columns twice": [{"match": "up|down", "cut": "columns"}, {"match": "table", "cut": "none"}],
    "some whole": [{"match": "head|up", "cut": "none"}, {"match": "down", "cut": "rows"}],
}


def test_losses_and_weights_are_those_of_one_device_under_any_rules_that_hold(tmp_path: Path) -> None:
    program = write_program(tmp_path / "program", SOURCE, name="wide")

    def request(name: str, plan: dict[str, Any], **strategy: Any) -> TrainRequest:
        task = program_task("wide:Wide", program, program / "rows.jsonl", strategy=strategy)
        return program_request(tmp_path / name, task, plan)

    one = train(request("one", {"micro_batch": 8}))
    cut = {"workers": 2, "tensor_parallel": 2, "micro_batch": 8}
    refused = {"norm": [{"match": "norm", "cut": "rows"}], "none": [{"match": "nowhere", "cut": "rows"}]}
    cases = {**RULES, **refused}
    answers = train_in_ranks([request(name, cut, tensorParallel=2, shardingRules=rules) for name, rules in cases.items()], workers=2)

    whole = load_file(tmp_path / "one" / "out" / "model" / "model.safetensors")
    for name, answer in zip(cases, answers, strict=True):
        if name in refused:
            assert isinstance(answer, BadInput), name
            assert "cannot be cut over 2 ranks" in answer.cause or "no module with weights matches the sharding rule" in answer.cause
            continue
        assert not isinstance(answer, TuneyardError), name
        assert answer.losses == pytest.approx(one.losses, rel=1e-5), name
        for key, value in load_file(tmp_path / name / "out" / "model" / "model.safetensors").items():
            assert float((value - whole[key]).abs().max()) < 1e-5, (name, key)
