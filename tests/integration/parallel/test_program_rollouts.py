"""Programs that act before they learn, and federated averaging: exact means, equal runs after a stop, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.builders.checkpoints import stop_after
from tests.builders.programs import example_data, example_request, line_request, made_data, write_program
from tests.ranks.groups import results_in_ranks, train_in_ranks
from torch import nn
from torch.nn.functional import cross_entropy

from tuneyard.api import TuneyardError
from tuneyard.tracking.events import Event, Warned
from tuneyard.training import TrainRequest, train

ROLLOUT = '''

    def rollout(self, model, batch):
        """Its own answers, as many for each row as its first number says, are what the loss counts."""
        kept = torch.arange(4) < 4 * batch["x"][:, :1]
        return {"x": batch["x"], "y": batch["y"] + 0.1 * model(batch["x"])[:, 0], "kept": kept.float(), "count": kept.sum()}
'''
LOSS = """errors = (model(batch["x"])[:, 0] - batch["y"]).square()[:, None] * batch["kept"]
        return errors.sum() / batch["kept"].sum().clamp(min=1)"""


def acting(folder: Path, rollout: str = ROLLOUT, **changes: str) -> Path:
    write_program(folder, **{"loss": LOSS, **changes})
    module = folder / "line.py"
    module.write_text(module.read_text().rstrip() + rollout)
    return folder


def request_of(folder: Path, program: Path, plan: dict[str, Any] | None = None, **changes: Any) -> TrainRequest:
    fields: dict[str, Any] = {"data": {"source": str(program / "rows.jsonl"), "validationFraction": 0.3}, "checkpoint": {"everySteps": 2}}
    return line_request(folder, program, plan, **{**fields, "evaluation": {"everySteps": 3}, **changes})


def test_a_mean_over_what_was_rolled_out_is_exact_on_any_layout_and_after_a_stop(tmp_path: Path) -> None:
    program = acting(tmp_path / "program")
    layouts: dict[str, dict[str, Any]] = {"plain": {}, "zero-2": {"zero": 2}, "zero-3": {"zero": 3}}

    one = train(request_of(tmp_path / "one", program, {"micro_batch": 8}))
    cut = train(request_of(tmp_path / "cut", program, {"micro_batch": 1}))
    two = results_in_ranks([request_of(tmp_path / name, program, {"workers": 2, **plan}) for name, plan in layouts.items()], workers=2)
    for name in layouts:
        shutil.copytree(tmp_path / name, tmp_path / f"{name}-stopped")
        stop_after(4, tmp_path / f"{name}-stopped" / "out")
    again = results_in_ranks(
        [request_of(tmp_path / f"{name}-stopped", program, {"workers": 2, **plan}) for name, plan in layouts.items()], workers=2
    )

    for other in (cut, *two):
        assert other.losses == pytest.approx(one.losses, rel=1e-5)
        assert [loss for _, loss in other.eval_losses] == pytest.approx([loss for _, loss in one.eval_losses], rel=1e-5)
        assert other.flops_per_step == one.flops_per_step == 8 * (2 * 2 + 2 * 2 + 2 * 2)  # to act, forward, and the gradient by weights
    for whole, resumed in zip(two, again, strict=True):
        assert resumed.resumed_from == 4
        assert resumed.losses == whole.losses
        assert resumed.eval_losses == whole.eval_losses


def test_random_numbers_of_a_roll_out_are_said_and_the_same_after_a_stop(tmp_path: Path) -> None:
    program = acting(tmp_path / "program", ROLLOUT.replace('batch["y"] +', 'torch.randn(len(batch["y"])) +'))
    heard: list[Event] = []

    whole = train(request_of(tmp_path / "whole", program, {"micro_batch": 4}), emit=heard.append)
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    stop_after(4, tmp_path / "stopped" / "out")
    resumed = train(request_of(tmp_path / "stopped", program, {"micro_batch": 4}))
    rarely = train(request_of(tmp_path / "rarely", program, {"micro_batch": 4}, evaluation={"everySteps": 6}))

    (said,) = [event.message for event in heard if isinstance(event, Warned)]
    assert "the rollout or loss of line:Line draws random numbers" in said
    assert resumed.losses == whole.losses
    assert rarely.losses == whole.losses  # an evaluation draws none of the numbers of training


def rollout_of(body: str) -> str:
    return f"\n\n    def rollout(self, model, batch):\n        {body}\n"


WRONG: dict[str, tuple[str, dict[str, str], str]] = {
    "returns nothing": (rollout_of("model(batch['x'])"), {}, "rollout of line:Line returned NoneType, and not a dict of tensors"),
    "returns a list": (rollout_of("return {'x': [1, 2]}"), {}, "rollout of line:Line returned x as list, and not as a tensor"),
    "raises": (rollout_of("return batch['z']"), {}, "the program reads batch['z'], and its collate makes count, x, y"),
    "changes weights": (
        rollout_of("model.weight.mul_(0.5)\n        return {**batch, 'kept': torch.ones(len(batch['y']), 4)}"),
        {},
        "rollout of line:Line changes weight of the model",
    ),
    "changes buffers": (
        rollout_of("model.seen.add_(1)\n        return {**batch, 'kept': torch.ones(len(batch['y']), 4)}"),
        {"model": "made = nn.Linear(2, 1)\n        made.register_buffer('seen', torch.zeros(1))\n        return made"},
        "rollout of line:Line changes seen of the model",
    ),
    "leads to no loss": (ROLLOUT, {"loss": "self.last = model(batch['x'])"}, "loss of line:Line returned nothing, and not a tensor"),
    "leaves the loss without a gradient": (
        rollout_of("return {'y': model(batch['x'])[:, 0] - batch['y']}"),
        {"loss": "return batch['y'].square().mean()"},
        "loss of line:Line depends on no trained parameter",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_roll_out_that_loss_cannot_learn_from_is_refused(case: str, tmp_path: Path) -> None:
    rollout, changes, said = WRONG[case]
    with pytest.raises(TuneyardError) as raised:
        train(request_of(tmp_path, acting(tmp_path / "program", rollout, **changes)))
    assert said in raised.value.cause
    assert raised.value.next_step


def test_ranks_that_act_a_different_number_of_times_are_refused_under_zero_3_and_only_there(tmp_path: Path) -> None:
    uneven = "for _ in range(1 + __import__('torch').distributed.get_rank()):\n            made = model(batch['x'])"
    program = acting(tmp_path / "program", rollout_of(f"{uneven}\n        return {{**batch, 'kept': made.expand(-1, 4) * 0 + 1}}"))
    other = acting(tmp_path / "other", "", loss="return model(batch['x']).mean()", predict=f"{uneven}\n        return [{{}} for _ in made]")
    plans = {"zero-2": (program, {"zero": 2}, {}), "zero-3": (program, {"zero": 3}, {}), "predict": (other, {"zero": 3}, {"samples": 4})}

    answers = train_in_ranks(
        [
            request_of(tmp_path / name, folder, {"workers": 2, **plan}, evaluation={"everySteps": 3, **evaluation})
            for name, (folder, plan, evaluation) in plans.items()
        ],
        workers=2,
    )

    assert not isinstance(answers[0], TuneyardError)
    for answer, function in zip(answers[1:], ("rollout", "predict"), strict=True):
        assert isinstance(answer, TuneyardError)
        assert f"{function} of line:Line calls the model more often on some ranks than on others" in answer.cause


def test_federated_averaging_takes_the_steps_of_the_paper(tmp_path: Path) -> None:
    """McMahan et al. 2017, algorithm 1, in plain torch, on the clients that the steps get: those of an order that is not shuffled."""
    source = example_data("federated", tmp_path / "made")
    fields: dict[str, Any] = {"batch": {"global": 4}, "steps": 3, "data": {"source": str(source), "shuffle": False}}
    fields["optimizer"] = {"name": "sgd", "learningRate": 1, "schedule": "constant", "warmup": 0, "maxGradNorm": 0}
    requests = {"one": {"micro_batch": 4}, "cut": {"micro_batch": 1}}
    for name, plan in requests.items():
        train(example_request(tmp_path / name, "federated", source, plan, **fields))
    results_in_ranks([example_request(tmp_path / "two", "federated", source, {"workers": 2, "micro_batch": 2}, **fields)], workers=2)

    torch.manual_seed(42)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))
    clients = made_data().MADE["federated"]().to_pylist()
    for step in range(3):
        learned, start = [], {name: value.clone() for name, value in model.state_dict().items()}
        for client in clients[4 * step : 4 * step + 4]:
            model.load_state_dict(start)
            local = torch.optim.SGD(model.parameters(), lr=0.5)
            for _ in range(5):
                local.zero_grad()
                cross_entropy(model(torch.tensor(client["points"])), torch.tensor(client["kinds"])).backward()
                local.step()
            learned.append((len(client["kinds"]), {name: value.clone() for name, value in model.state_dict().items()}))
        total = sum(size for size, _ in learned)
        model.load_state_dict({name: sum(size / total * each[name] for size, each in learned) for name in start})

    for name in (*requests, "two"):
        weights = load_file(tmp_path / name / "out" / "model" / "model.safetensors")
        for key, value in model.state_dict().items():
            assert torch.allclose(weights[key], value, atol=1e-5), (name, key)
