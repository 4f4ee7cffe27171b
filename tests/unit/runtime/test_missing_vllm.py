"""Where vLLM has no wheels, as on macOS, a job that scores is refused before anything of it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuneyard.admission import Machine
from tuneyard.api import BadInput, JobSpec
from tuneyard.runtime import checks


def test_a_score_task_is_refused_without_vllm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    score = {"model": {"name": "m"}, "data": {"source": "d.jsonl", "prompt": "q"}}
    job = JobSpec.model_validate({"metadata": {"name": "job"}, "spec": {"tasks": [{"name": "judge", "score": score}]}})
    with pytest.raises(BadInput, match="judge is a score task, and vLLM is not installed") as error:
        checks.check_job(job, base_dir=tmp_path, machine=Machine("cpu", 2))
    assert "Linux" in error.value.next_step
