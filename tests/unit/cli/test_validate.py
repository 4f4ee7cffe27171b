"""`tuneyard validate` and `tuneyard schema`, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tuneyard.api import BadInput, JobSpec
from tuneyard.cli import main
from tuneyard.cli.checks import check_file

JOB = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: small}
spec:
  tasks:
  - name: train
    train:
      model: {name: tiny, attention: auto}
      data: {source: chats.jsonl}
    resources: {sku: [a100-80gb, cpu]}
"""
ROW = '{"prompt": "2 + 2?", "completion": "4"}\n'


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    (tmp_path / "chats.jsonl").write_text(ROW)
    return path


def test_a_right_file(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(job)]) == 0
    assert capsys.readouterr().out == f"{job}: ok (JobSpec small)\n"


def test_wrong_files_are_all_checked(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(JOB.replace("chats.jsonl}", "chats.jsonl, pakc: true}"))
    assert main(["validate", str(wrong), str(job), str(tmp_path / "none.yaml")]) == 2
    shown = capsys.readouterr()
    assert shown.out == f"{job}: ok (JobSpec small)\n"
    assert shown.err.splitlines() == [
        f"{wrong}:9:35: spec.tasks[0].train.data.pakc: unknown field (did you mean pack?)",
        f"{tmp_path / 'none.yaml'}: no such file",
    ]


def test_files_that_are_not_there_are_warnings(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "chats.jsonl").unlink()
    job.write_text(JOB.replace("name: tiny", "name: ./model"))
    assert main(["validate", str(job)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{job}: ok (JobSpec small)\n"
    assert shown.err.splitlines() == [
        f"warning: {job}:8:15: spec.tasks[0].train.model.name: ./model is not a model: it has no config.json, and no adapter_config.json; "
        "give the folder of a finished `tuneyard run`, of its train task, or of a model",
        f"warning: {job}:9:14: spec.tasks[0].train.data.source: chats.jsonl: no such file or folder beside the JobSpec",
    ]
    job.write_text(JOB.replace("chats.jsonl", "'*.jsonl'"))
    assert main(["validate", str(job), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["warnings"] == [f"{job}:9:14: spec.tasks[0].train.data.source: no file matches *.jsonl"]
    (tmp_path / "chats.jsonl").write_text(ROW)
    assert main(["validate", str(job)]) == 0
    assert capsys.readouterr().err == ""


def test_data_that_are_there_and_cannot_serve_are_warned_of(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("./model", "m"))
    (tmp_path / "chats.jsonl").write_text('{"a": 1, "b": 2}\n')
    assert main(["validate", str(job)]) == 0
    assert "spec.tasks[0].train.data.source: " in (told := capsys.readouterr().err)
    assert "of no known format; columns found: a, b" in told
    (tmp_path / "good.jsonl").write_text(ROW)
    (tmp_path / "empty.jsonl").touch()
    mix = "{mix: [{source: good.jsonl}, {source: empty.jsonl, name: nothing}, {source: chats.jsonl}]}"
    job.write_text(job.read_text().replace("{source: chats.jsonl}", mix))
    assert main(["validate", str(job)]) == 0
    empty, unknown = capsys.readouterr().err.splitlines()
    assert "spec.tasks[0].train.data.mix[1].source: part nothing of the mixture: " in empty
    assert empty.endswith("or take nothing out of data.mix")
    assert "mix[2].source: part chats.jsonl of the mixture: " in unknown
    assert "columns found: a, b" in unknown


def test_an_unknown_sku_has_its_line_and_the_nearest_name(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("a100-80gb", "a100-8gb"))
    assert main(["validate", str(job)]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"{job}:10:23: spec.tasks[0].resources.sku[0]: unknown SKU 'a100-8gb'; use a100-80gb or ")
    assert "a100-80gb" in line


def test_a_device_that_cannot_is_refused_by_the_catalogs_facts(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("attention: auto", "attention: flash").replace("a100-80gb, cpu", "v100-16gb"))
    assert main(["validate", str(job)]) == 2
    line = capsys.readouterr().err
    assert "spec.tasks[0].train.model.attention: flash attention on a device that cannot run it (on v100-16gb) cannot work" in line
    assert "nearest that works: model.attention: sdpa" in line


def test_json_for_programs(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    assert main(["validate", str(job), str(empty), "-o", "json"]) == 2
    assert json.loads(capsys.readouterr().out) == [
        {"file": str(job), "valid": True, "objects": ["JobSpec small"], "errors": [], "warnings": []},
        {"file": str(empty), "valid": False, "objects": [], "errors": [f"{empty}: the file is empty"], "warnings": []},
    ]


def test_the_crds_and_the_json_schema_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "crd"]) == 0
    assert "JobSpec" in [document["spec"]["names"]["kind"] for document in yaml.safe_load_all(capsys.readouterr().out)]
    assert main(["schema", "json", "--kind", "Team"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Tuneyard Team"


def test_an_unknown_kind_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "json", "--kind", "Jobspec"]) == 2
    assert (
        capsys.readouterr().err
        == "error: there is no kind 'Jobspec' (did you mean JobSpec?)\nnext: use one of: JobSpec, Cluster, Team, Schedule, ModelTemplate\n"
    )


def test_a_sku_that_a_cluster_of_the_hub_names_is_understood(job: Path) -> None:
    asked: list[str] = []

    def elsewhere() -> list[str]:
        asked.append("hub")
        return ["big-cards"]

    check_file(job, elsewhere=elsewhere)
    assert asked == []  # only where there is a name to ask about
    job.write_text(JOB.replace("a100-80gb", "big-cards"))
    (document,) = check_file(job, elsewhere=elsewhere)
    assert asked == ["hub"]
    with pytest.raises(BadInput, match="unknown SKU 'big-cards'"):
        check_file(job)
    assert isinstance(document.resource, JobSpec)


SCHEDULE = """\
apiVersion: tuneyard.dev/v1alpha1
kind: Schedule
metadata: {name: nightly}
spec:
  cron: 0 2 * * *
  waitFor: {path: "s3://logs/date={{ run.date - 1d }}/_SUCCESS"}
  regression: {exact_match: {worseBy: 2%}}
  template:
    spec:
      image: 'registry/{{ run.date | %Y }}'
      tasks:
      - name: judge
        process: {command: [score, "{{ run.date }}"]}
"""


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("run.date - 1d", "run.dat", ":6:13: spec.waitFor.path: {{ run.dat }} is not an expression; known are {{ run.date }}"),
        (
            '"{{ run.date }}"',
            '"{{ run.date - 1h }}"',
            "tasks[0].process.command[1]: {{ run.date - 1h }}: 'h' is no unit",
        ),
        ("'registry/{{ run.date | %Y }}'", "'{{ \"\" }}'", ":10:7: spec.template.spec.image: in the run of "),
        ("exact_match: {worseBy: 2%}", "mine: {worseBy: 2%}", "spec.regression.mine: 'mine' is none of: exact_match"),
        ("exact_match: {worseBy: 2%}", "exact_match: {}", "spec.regression.exact_match: give at least one of worseBy"),
        ("worseBy: 2%", "worseBy: 2", "spec.regression.exact_match.worseBy: "),
        ("  template:", "  backfill: {from: 2026-02-30, to: 2026-03-01}\n  template:", "2026-02-30 is not a date"),
        ("0 2 * * *", "0 0 30 2 *", "it would never run"),
    ],
)
def test_a_schedule_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, complaint: str
) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(SCHEDULE)
    assert main(["validate", str(file)]) == 0, capsys.readouterr().err
    file.write_text(SCHEDULE.replace(before, after))
    assert main(["validate", str(file)]) == 2
    assert complaint in capsys.readouterr().err


ENDPOINTS = """\
apiVersion: tuneyard.dev/v1alpha1
kind: Schedule
metadata: {name: nightly}
spec:
  cron: 0 2 * * *
  template:
    spec:
      tracking: {wandb: {project: 'bot {{ run.date | %Y-%m }}'}}
      tasks:
      - name: judge
        score:
          data: {source: 's3://logs/{{ run.date }}', prompt: question}
          engine: {endpoint: {url: 'http://{{ run.name }}.models/v1', model: small}}
"""


def test_addresses_and_names_of_a_schedule_may_hold_expressions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are checked with the values that the next run will have."""
    file = tmp_path / "nightly.yaml"
    file.write_text(ENDPOINTS)
    assert main(["validate", str(file)]) == 0, capsys.readouterr().err
    file.write_text(ENDPOINTS.replace("{{ run.name }}.models", "{{ run.time }}.models").replace("%Y-%m", "%Y/%m"))
    assert main(["validate", str(file)]) == 2
    said = capsys.readouterr().err
    assert "endpoint.url: in the run of " in said
    assert "wandb.project: in the run of " in said
