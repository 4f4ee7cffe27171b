"""The table of trackers: complete, light, and refused early."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.builders.reports import make_job

from tuneyard.api import BadInput, Tracking
from tuneyard.extras import ASKED_FOR
from tuneyard.runtime.checks import check_trackers
from tuneyard.tracking import asked_for
from tuneyard.tracking.trackers import TRACKERS

ROOT = Path(__file__).parents[4]
ALL = {"comet": {"project": "p"}, "wandb": {"project": "p"}, "mlflow": {"experiment": "e", "uri": "https://m"}, "tensorboard": {}}


def test_every_field_has_an_entry_an_extra_and_a_module_of_its_name() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert list(TRACKERS) == list(Tracking.model_fields)
    for name, kind in TRACKERS.items():
        assert kind.extra in extras
        assert kind.extra in ASKED_FOR
        assert (ROOT / f"platform/tuneyard/tracking/trackers/{name}_tracker.py").exists()


def test_a_job_asks_for_the_trackers_that_it_names() -> None:
    assert [asked.name for asked in asked_for(make_job(tracking=ALL).spec.tracking)] == list(TRACKERS)
    assert list(asked_for(make_job().spec.tracking)) == []


def test_no_client_is_imported_before_it_is_used() -> None:
    clients = ("comet_ml", "wandb", "mlflow", "tensorboard", "torch")
    program = f"import sys, tuneyard.tracking.recorder; print([name for name in {clients} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("name", list(TRACKERS))
def test_a_missing_client_is_refused_with_the_line_for_pip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tuneyard.extras._installed", lambda distribution: not distribution.startswith(("comet", "wandb", "mlflow", "tensorboard"))
    )
    with pytest.raises(BadInput) as raised:
        check_trackers(make_job(tracking={name: ALL[name]}), {})
    assert f"tracking.{name}" in raised.value.cause
    assert raised.value.next_step.startswith("pip install '")
    assert f"[{name}]" in raised.value.next_step


def test_mlflow_needs_a_server_of_the_job_or_of_the_environment() -> None:
    job = make_job(tracking={"mlflow": {"experiment": "e"}})
    with pytest.raises(BadInput, match="MLFLOW_TRACKING_URI is not set"):
        check_trackers(job, {})
    check_trackers(job, {"MLFLOW_TRACKING_URI": "https://m"})
    check_trackers(make_job(tracking=ALL), {})
