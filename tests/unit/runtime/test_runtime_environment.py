"""Variables and secrets of a job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuneyard.api import BadInput, EnvVar
from tuneyard.runtime.environment import environment, hide, resolve_environment, scrub, secret_values


def secret(name: str, key: str, *, optional: bool = False) -> EnvVar:
    return EnvVar.model_validate({"name": name, "valueFrom": {"secretKeyRef": {"name": "any", "key": key, "optional": optional}}})


def test_secrets_are_looked_up_in_the_environment() -> None:
    variables = [EnvVar(name="MODE", value="fast"), secret("HF_TOKEN", "token")]
    values = resolve_environment(variables, {"token": "hf_abc123"})
    assert values == {"MODE": "fast", "HF_TOKEN": "hf_abc123"}
    assert secret_values(variables, values) == ["hf_abc123"]


def test_missing_secrets_are_all_named() -> None:
    with pytest.raises(BadInput, match=r"token \(for HF_TOKEN\), COMET_API_KEY") as error:
        resolve_environment([secret("HF_TOKEN", "token"), secret("COMET_API_KEY", "COMET_API_KEY")], {})
    assert "export token=" in error.value.next_step


def test_an_optional_secret_may_be_missing() -> None:
    assert resolve_environment([secret("HF_TOKEN", "token", optional=True)], {}) == {}


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERE", "before")
    monkeypatch.delenv("NOT_THERE", raising=False)
    with environment({"THERE": "during", "NOT_THERE": "x"}):
        assert (os.environ["THERE"], os.environ["NOT_THERE"]) == ("during", "x")
    assert os.environ["THERE"] == "before"
    assert "NOT_THERE" not in os.environ


def test_logs_are_scrubbed(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("token is abcdefgh\nnothing here\n")
    scrub(log, ["abcdefgh"])
    assert log.read_text() == "token is ***\nnothing here\n"
    assert hide("short: xy", ["xy"]) == "short: ***"
