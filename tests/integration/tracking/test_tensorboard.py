"""TensorBoard's event files, read back by its own reader."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import TENSORS, EventAccumulator
from tensorboard.util.tensor_util import make_ndarray
from tests.servers.tracked_job import NAMES, STEPS, run_tracked


def test_event_files_hold_all_metrics_and_parameters(tmp_path: Path) -> None:
    assert run_tracked(tmp_path, {"tensorboard": {}}) == ["succeeded"]

    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={TENSORS: 0})
    events.Reload()
    assert set(events.Tags()["tensors"]) >= NAMES
    losses = events.Tensors("train/loss")
    assert [each.step for each in losses] == list(range(1, STEPS + 1))
    assert 1 < make_ndarray(losses[-1].tensor_proto).item() < 2
    (result,) = events.Tensors("train/result/mfu")
    assert result.step == STEPS
    assert events.Tensors("judge/result/metrics/rouge_l")[0].step == 150
    texts = [make_ndarray(events.Tensors(name)[0].tensor_proto).item().decode() for name in ("job", "train/plan", "status")]
    assert "| job/tasks/train/train/steps | 120 |" in texts[0]
    assert "written-value" not in texts[0]
    assert "| train/plan/zero | 3 |" in texts[1]
    assert texts[2] == "succeeded"


def test_two_runs_in_one_output_have_a_file_each(tmp_path: Path) -> None:
    for _ in range(2):
        run_tracked(tmp_path, {"tensorboard": {}})
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
