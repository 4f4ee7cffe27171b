"""`batch.global: auto` in `tuneyard plan`: the rows of a step on each placement, and the steps that follow from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.test_plan import JOB, LLAMA_8B, rows

from tuneyard.cli import main


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA_8B))
    return tmp_path / "job.yaml"


def test_an_open_batch_is_as_large_as_each_kind_of_gpu_holds_and_decides_the_steps_of_an_epoch(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chats = [{"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "yes"}]}] * 3000
    (job.parent / "chats.jsonl").write_text("\n".join(map(json.dumps, chats)))
    job.write_text(
        JOB.replace("steps: 1000", "batch: {global: auto}\n      epochs: 2").replace(
            "h100-80gb]}\n  - name: judge", "h200]}\n  - name: judge"
        )
    )
    assert main(["validate", str(job)]) == 0
    capsys.readouterr()
    small, large = (row for row in rows(capsys, str(job), "--workers", "8") if row["task"] == "train")
    for row in (small, large):
        assert (row["global_batch"], row["grad_accum"], row["global_batch_from"]) == (8 * row["micro_batch"], 1, "placement")
        assert row["steps"]["likely"] == -(-2 * 3000 // row["global_batch"])
    assert large["micro_batch"] > small["micro_batch"]
    swept = rows(capsys, str(job), "--workers", "8", "--sweep", "offload")
    assert [row["micro_batch"] for row in swept if row["sweep"]["offload"] == "none"] == [small["micro_batch"], large["micro_batch"]]

    assert main(["plan", str(job), "--workers", "8"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    counts = f"{small['global_batch']:,} on 8 x a100-80gb, {large['global_batch']:,} on 8 x h200-141gb"
    assert f"follow from where the run begins: {counts}; a resume on other workers keeps its number" in shown
    assert "few to learn from" in shown
