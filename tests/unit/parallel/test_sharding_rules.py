"""A user's own cuts of a model: the plan follows them, cuts the rest as before, or says why it cannot."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tuneyard.api import BadInput
from tuneyard.parallel import CutRule, TensorParallelPlan, explain_tensor_parallel, wishes_of

IDS = {"ids": torch.zeros((3, 8), dtype=torch.long, device="meta")}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(40, 16)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 24)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def planned(*rules: tuple[str, str]) -> TensorParallelPlan:
    with torch.device("meta"):
        model = Small()
    wishes = wishes_of(model, [CutRule(match, cut) for match, cut in rules])  # type: ignore[arg-type]
    return explain_tensor_parallel(model, 2, inputs=IDS, wishes=wishes)


AUTOMATIC = {
    "blocks.*.up": "colwise",
    "blocks.*.down": "rowwise",
    "head": "colwise_gather_output",
    "table": "embedding_rowwise",
}


def test_without_rules_the_plan_is_the_automatic_one() -> None:
    assert planned().styles == AUTOMATIC


@pytest.mark.parametrize(
    ("rules", "changed"),
    [
        ([("up", "columns"), ("down", "rows"), ("table", "rows")], {}),
        ([("head", "none")], {"head": None}),
        ([("head", "rows")], {"head": "rowwise_split_input"}),
        ([("table", "none")], {"table": None}),
        ([("norm", "none")], {}),
        ([("up", "rows")], {"blocks.*.up": "rowwise_split_input"}),
        ([("down", "columns")], {"blocks.*.down": "colwise_gather_output"}),
        (
            [("up", "none"), (r"\.down$", "none"), (".*", "rows")],
            {"blocks.*.up": None, "blocks.*.down": None, "head": "rowwise_split_input"},
        ),
    ],
)
def test_the_plan_follows_the_rules_and_cuts_the_rest(rules: list[tuple[str, str]], changed: dict[str, str | None]) -> None:
    if rules[-1][0] == ".*":
        rules = [*rules[:-1], ("norm", "none"), rules[-1]]
    found = planned(*rules).styles

    asked = {name: style for name, style in found.items() if name in changed}
    assert asked == {name: style for name, style in changed.items() if style is not None}
    if not any(name.startswith("blocks") for name in changed):
        assert found == {name: style for name, style in {**AUTOMATIC, **changed}.items() if style is not None}


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([("table", "columns")], "the sharding rule {match: table, cut: columns} cannot hold for table: the proof makes it"),
        ([("norm", "rows")], "cannot hold for blocks.*.norm: the proof makes it replicated; "),
        ([("ups", "rows")], "no module with weights matches the sharding rule {match: ups, cut: rows}"),
        ([("0.up", "none")], "treat blocks.1.up (no rule) and other modules of blocks.*.up ({match: 0.up, cut: none}) differently"),
        ([("up|down|head|table", "none")], "2 ranks shard nothing of Small"),
    ],
)
def test_a_rule_that_cannot_hold_is_refused(rules: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(BadInput) as raised:
        planned(*rules)
    assert said in raised.value.cause
    assert raised.value.next_step
