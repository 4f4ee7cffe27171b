"""What a run adds up about itself: rates, progress, the guard against NaN, the model card."""

from __future__ import annotations

import json
import threading
import time

import pytest

from tuneyard.api import JobFailed, TrainTask
from tuneyard.planning import Plan
from tuneyard.training import TrainRequest
from tuneyard.training.model_card import model_card
from tuneyard.training.nan_guard import check_loss
from tuneyard.training.progress import Progress
from tuneyard.training.stop import listening
from tuneyard.training.throughput import Throughput


def test_rates_leave_out_the_first_step_checkpoints_and_evaluations() -> None:
    throughput = Throughput(Progress(), lambda tokens, _length: 6.0 * tokens, peak_flops=1200.0)
    throughput.add(100, 1000, {"forward": 50.0})
    throughput.add(100, 1000, {"forward": 0.5, "backward": 0.5, "checkpoint": 3.0, "evaluation": 7.0})

    mean = throughput.mean()

    assert mean.tokens_per_s == pytest.approx(100)
    assert mean.mfu == pytest.approx(0.5)
    assert throughput.flops_per_step == 600


def test_a_run_of_one_step_still_has_rates() -> None:
    throughput = Throughput(Progress(), lambda tokens, _length: tokens, peak_flops=1.0)
    throughput.add(100, 1000, {"forward": 2.0})

    assert throughput.mean().tokens_per_s == pytest.approx(50)


def test_attention_is_charged_by_the_length_of_samples_not_of_rows() -> None:
    lengths: list[float] = []
    throughput = Throughput(Progress(), lambda _tokens, length: lengths.append(length) or 1.0, peak_flops=1.0)

    throughput.add(tokens=30, squares=10 * 10 + 20 * 20, seconds={"forward": 1.0})

    assert lengths == [pytest.approx(500 / 30)]


def test_progress_survives_a_checkpoint() -> None:
    progress = Progress(losses=[2.0, 1.5], eval_losses=[(1, 1.9), (2, 1.8)], tokens=640, split_s={"forward": 1.25}, best_step=2)
    progress.evaluations_without_gain = 3

    assert Progress.from_dict(json.loads(json.dumps(progress.to_dict()))) == progress
    assert progress.best_eval_loss == 1.8


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_run_with_cause_and_next_step(loss: float) -> None:
    with pytest.raises(JobFailed) as failure:
        check_loss(17, loss, learning_rate=0.5, precision="fp16", last_loss=3.25)

    assert "step 17" in failure.value.cause
    assert "0.5" in failure.value.cause
    assert "fp16" in failure.value.cause
    assert "bf16 or fp32" in failure.value.next_step


def test_a_stop_that_is_asked_for_is_noticed_without_asking_in_every_step() -> None:
    asked = threading.Event()
    with listening(asked.is_set) as stop:
        assert not stop.wanted
        asked.set()
        deadline = time.monotonic() + 120
        while not stop.wanted and time.monotonic() < deadline:
            time.sleep(0.05)

        assert stop.wanted


def test_the_model_card_says_what_the_model_was_made_from_and_how() -> None:
    task = TrainTask.model_validate(
        {"model": {"name": "acme/base"}, "data": {"source": "s3://data/chats"}, "method": {"lora": {"rank": 8}}, "seed": 11}
    )
    plan = Plan(sku="h100-80gb", workers=8, zero=2, precision="bf16", attention="flash", micro_batch=4, grad_accum=1)
    request = TrainRequest(job="bot", name="tune", task=task, plan=plan, model_uri="acme/base", output="out", scratch="scratch")

    card = model_card(request, {"steps": 100, "held-out loss": 1.23456, "MFU": "41.0%"})

    assert card.startswith("---\nlibrary_name: peft\nbase_model: acme/base\n")
    for fact in ("s3://data/chats", "rank 8, alpha 16", "8 x h100-80gb", "32 rows (4 x 1 x 8)", "1.235", "41.0%", "| seed | 11 |"):
        assert fact in card
