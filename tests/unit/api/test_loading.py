"""What a person reads when a file is wrong: the line, the path, the reason, and what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuneyard.api import BadInput, Cluster, JobSpec, load_documents, load_jobspec, parse

HEAD = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: support-bot}
spec:
  tasks:
  - name: train
    train:
      model: {name: tiny}
      data: {source: chats.jsonl}
"""
CLUSTER = """\
apiVersion: tuneyard.dev/v1alpha1
kind: Cluster
metadata: {name: dca}
spec:
  skus: [{name: cpu, nodes: 1, gpusPerNode: 2}]
"""


def complaints(text: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        parse(text, "job.yaml")
    assert caught.value.exit_code == 2
    return caught.value.cause.splitlines()


def test_a_right_file_loads(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(HEAD + "      optimizer: {learningRate: 2e-4}\n      epochs: 1\n")
    job = load_jobspec(path)
    assert job.metadata.name == "support-bot"
    train = job.spec.tasks[0].train
    assert train is not None
    assert train.optimizer.learning_rate == 2e-4


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("optimiser: {name: adamw}", "job.yaml:10:7: spec.tasks[0].train.optimiser: unknown field (did you mean optimizer?)"),
        ("learningRate: 1e-4", "job.yaml:10:7: spec.tasks[0].train.learningRate: unknown field (did you mean optimizer.learningRate?)"),
        (
            "dependsOn: [other]",
            "job.yaml:10:7: spec.tasks[0].train.dependsOn: unknown field (dependsOn belongs one group further out)",
        ),
        ("objective: stf", "job.yaml:10:7: spec.tasks[0].train.objective: 'stf' is none of: sft, clm, dpo (did you mean sft?)"),
        ("steps: many", "job.yaml:10:7: spec.tasks[0].train.steps: expected a whole number; found 'many'"),
        ("epochs: -1", "job.yaml:10:7: spec.tasks[0].train.epochs: must be above 0; found -1"),
        ("batch: {micro: biggest}", "job.yaml:10:15: spec.tasks[0].train.batch.micro: expected a whole number or auto; found 'biggest'"),
        ("strategy: {zero: 4}", "job.yaml:10:18: spec.tasks[0].train.strategy.zero: expected 0, 1, 2, 3 or auto; found 4"),
        ("strategy: {zeros: 3}", "job.yaml:10:18: spec.tasks[0].train.strategy.zeros: unknown field (did you mean zero?)"),
        (
            "strategy: atuo",
            "job.yaml:10:7: spec.tasks[0].train.strategy: "
            "expected a group of `key: value` lines or auto; found 'atuo' (did you mean auto?)",
        ),
        (
            "method: {lora: {}, full: {}}",
            "job.yaml:10:7: spec.tasks[0].train.method: give exactly one of full, lora, qlora and dora; found full, lora",
        ),
        (
            "method: full",
            "job.yaml:10:7: spec.tasks[0].train.method: expected a group of `key: value` lines; found 'full'; write method: {full: {}}",
        ),
        ("method: fuller", "job.yaml:10:7: spec.tasks[0].train.method: expected a group of `key: value` lines; found 'fuller'"),
        ("seed: 1.5", "job.yaml:10:7: spec.tasks[0].train.seed: expected a whole number; found 1.5"),
        (
            "optimizer: {learningRate: .inf}",
            "job.yaml:10:19: spec.tasks[0].train.optimizer.learningRate: input should be a finite number; found inf",
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_place(line: str, expected: str) -> None:
    assert complaints(f"{HEAD}      {line}\n") == [expected]


def test_a_word_where_a_list_belongs_is_shown_as_a_list() -> None:
    (said,) = complaints(f"{HEAD}    resources: {{sku: cpu}}\n")
    assert said.endswith("resources.sku: expected a list; found 'cpu'; write sku: [cpu]")


def test_all_errors_of_a_file_come_at_once_in_file_order() -> None:
    text = HEAD.replace("name: support-bot", "name: Support Bot") + "      optimiser: {}\n      steps: no\n  priority: hihg\n"
    lines = complaints(text)
    assert [line.split(": ")[1] for line in lines] == [
        "metadata.name",
        "spec.tasks[0].train.optimiser",
        "spec.tasks[0].train.steps",
        "spec.priority",
    ]
    assert "lower-case letters, digits and '-'" in lines[0]
    assert lines[3].endswith("(did you mean high?)")


@pytest.mark.parametrize("name", ["rank", "process", "driver", "rank-0", "engine-1", "setup", "comet", "machines", "files"])
def test_a_task_may_have_the_name_of_a_kind_or_of_a_log(name: str) -> None:
    (job,) = parse(HEAD.replace("- name: train", f"- name: {name}"), "job.yaml")
    assert isinstance(job, JobSpec)
    assert job.spec.tasks[0].name == name


def test_a_task_is_not_named_as_the_folder_of_all_logs() -> None:
    assert complaints(HEAD.replace("- name: train", "- name: logs")) == [
        "job.yaml:6:5: spec.tasks[0].name: logs is the folder of all tasks' logs in the output: choose another name"
    ]


def test_a_missing_field_points_at_the_group_that_lacks_it() -> None:
    text = HEAD.replace("      data: {source: chats.jsonl}\n", "")
    assert complaints(text) == ["job.yaml:7:5: spec.tasks[0].train.data: required field is missing"]


@pytest.mark.parametrize(("workers", "says"), [("0", "must be at least 1; found 0"), ("1000000", "must be at most 100000; found 1000000")])
def test_a_number_that_is_beyond_its_bounds_is_told_them(workers: str, says: str) -> None:
    assert complaints(HEAD + f"    resources: {{workers: {workers}}}\n") == [f"job.yaml:10:17: spec.tasks[0].resources.workers: {says}"]


def test_an_elastic_range_is_judged_as_a_range() -> None:
    lines = complaints(HEAD + "    resources: {workers: {min: 3, max: 1}}\n")
    assert lines == ["job.yaml:10:17: spec.tasks[0].resources.workers: min 3 is above max 1"]


def test_a_rule_is_named_with_the_line_of_its_setting() -> None:
    lines = complaints(HEAD + "      method: {qlora: {rank: 8}}\n      strategy: {zero: 3}\n")
    assert len(lines) == 1
    assert lines[0].startswith("job.yaml:10:16: spec.tasks[0].train.method.qlora: 4-bit weights (qlora) under ZeRO-3 cannot work: ")
    assert lines[0].endswith("nearest that works: strategy.zero: 2, or method: {lora: {rank: 8}}")


def test_what_no_machine_could_run_is_refused_where_it_is_written() -> None:
    make = "  - name: make\n    process: {command: ['true']}\n"
    search = "  - name: search\n    tune: {task: make}\n"
    assert complaints(HEAD + make + search) == [
        "job.yaml:13:12: spec.tasks[2].tune.task: names the process task make, which is no train, rank or score task: name one of: train"
    ]
    assert complaints(HEAD + "  template: small\n") == [
        "job.yaml:10:3: spec.template: there is no ModelTemplate small here; put it into the same file, or give its file: "
        "--templates FILE; from a hub: kubectl get modeltemplate small -o yaml > FILE"
    ]


def test_a_gang_over_several_clusters_is_refused_with_what_to_write_instead() -> None:
    assert complaints(HEAD + "  placement: {spread: allowed}\n") == [
        "job.yaml:10:15: spec.placement.spread: a gang runs in one cluster, because its ranks cannot reach ranks in another: "
        "leave spread out, and list several clusters in placement.clusters if the job may run in any of them"
    ]


def test_a_task_that_waits_for_itself() -> None:
    (line,) = complaints(HEAD + "    dependsOn: [train]\n")
    assert line == "job.yaml:4:1: spec: tasks wait for each other: train -> train"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: JobSpec\nkind: JobSpec\n", "job.yaml:2:1: kind: given twice; the first one is on line 1"),
        ("a:\n\tb: 1\n", "job.yaml:2:1: a tab indents this line: YAML is indented with spaces"),
        ("- a\n- b\n", "job.yaml:1:1: not a mapping: a file starts with `apiVersion:`, `kind:`, `metadata:` and `spec:` lines"),
        ("just text\n", "job.yaml:1:1: not a mapping: a file starts with `apiVersion:`, `kind:`, `metadata:` and `spec:` lines"),
        ("a: b: c\n", "job.yaml:1:5: a second `:` where a value should be: check the indentation of this line, or quote the value"),
        ("a: *b\n", "job.yaml:1:4: an alias (*name) without an anchor (&name) before it"),
        ("a: &x [*x]\n", "job.yaml:1:4: a[0]: an alias inside the value that it stands for"),
        ("a: !python/object:os.system x\n", "job.yaml:1:4: a: the tag !python/object:os.system is not supported"),
        ("a: " + "[" * 5000, "job.yaml:1:67: nested deeper than 64 levels"),
        (HEAD.replace("JobSpec", "Jobspec"), "job.yaml:2:1: kind: 'Jobspec' is none of: JobSpec, Cluster, Team, Schedule, ModelTemplate"),
        (HEAD.replace("v1alpha1", "v1"), "job.yaml:1:1: apiVersion: 'tuneyard.dev/v1' is unknown: write tuneyard.dev/v1alpha1"),
        (HEAD.replace("kind: JobSpec\n", ""), "job.yaml:1:1: kind: missing: one of JobSpec, Cluster, Team, Schedule, ModelTemplate"),
    ],
)
def test_text_that_is_no_object(text: str, expected: str) -> None:
    assert any(line.startswith(expected) for line in complaints(text))


def test_aliases_that_explode_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    assert any("aliases expand to more than 100,000 values" in line for line in complaints("\n".join(lines)))


def test_anchors_and_merge_keys_are_fine() -> None:
    text = HEAD + "      batch: &b {global: 8}\n  - name: again\n    train:\n      model: {name: tiny}\n      data: {source: x}\n"
    (job,) = parse(text + "      batch: {<<: *b, micro: 2}\n", "job.yaml")
    assert isinstance(job, JobSpec)
    again = job.spec.task("again").train
    assert again is not None
    assert (again.batch.global_, again.batch.micro) == (8, 2)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n---\n", "null\n"])
def test_an_empty_file(text: str) -> None:
    assert complaints(text) == ["job.yaml: the file is empty"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(HEAD)
    (tmp_path / "binary.yaml").write_bytes(b"\x80\x81\x00")
    (tmp_path / "zero.yaml").write_bytes(b"a\0b")
    (tmp_path / "large.yaml").write_text("#" * 1_000_001)
    for name, cause, next_step in [
        ("jbo.yaml", "no such file", f"did you mean {tmp_path / 'job.yaml'}?"),
        (".", "is a folder", "give one of its files: binary.yaml, job.yaml"),
        ("binary.yaml", "is not a text file in UTF-8", "give a YAML file"),
        ("zero.yaml", "is a binary file", "give a YAML file"),
        ("large.yaml", "is larger than 1,000,000 bytes", "give a JobSpec"),
        ("job.yaml/x", "cannot be read: Not a directory", "check the path"),
    ]:
        with pytest.raises(BadInput) as caught:
            load_jobspec(tmp_path / name)
        assert cause in caught.value.cause, name
        assert next_step in caught.value.next_step, name


def test_several_objects_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(f"{CLUSTER}---\n{HEAD}---\n")
    assert [type(document.resource) for document in load_documents(path)] == [Cluster, JobSpec]
    with pytest.raises(BadInput, match="holds 2 objects"):
        load_jobspec(path)
    path.write_text(CLUSTER)
    with pytest.raises(BadInput, match="holds a Cluster, not a JobSpec"):
        load_jobspec(path)


def test_lines_count_through_the_whole_file() -> None:
    (line,) = complaints(f"{CLUSTER}---\n{HEAD}      objctive: sft\n")
    assert line.startswith("job.yaml:16:7: ")


def test_later_findings_can_name_lines_too() -> None:
    from tuneyard.api.loading import parse_documents

    (document,) = parse_documents(HEAD + "    resources: {sku: [h100]}\n", "job.yaml")
    path = ("spec", "tasks", 0, "resources", "sku", 0)
    assert document.complaint(path, "unknown SKU") == "job.yaml:10:23: spec.tasks[0].resources.sku[0]: unknown SKU"


def test_a_schedule_is_held_to_the_rules_of_the_job_that_it_starts() -> None:
    job = "\n".join(f"    {line}" for line in HEAD.splitlines()[3:])
    header = HEAD.replace("JobSpec", "Schedule").split("spec:")[0]
    text = f"{header}spec:\n  cron: 0 2 * * *\n  template:\n{job}\n          method: {{lora: {{rank: 0}}}}\n"
    (line,) = complaints(text)
    assert line.startswith("job.yaml:13:11: spec.template.spec.tasks[0].train.method: an adapter of rank below 1 cannot work")


def test_strange_names_stay_on_one_line() -> None:
    assert complaints(HEAD + '  team: {"a\\nb": 1}\n')[0].endswith("expected text (quote it); found a group ('a\\nb')")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("    score: {model: {from: trian}, data: {source: a}}", "11:21: spec.tasks[1].score.model.from"),
        ("    score: {model: {from: train}, data: {from: trian}}", "11:42: spec.tasks[1].score.data.from"),
        ("    process: {command: [a]}\n    dependsOn: [train, trian]", "12:24: spec.tasks[1].dependsOn[1]"),
        ("    tune: {task: trian, space: {batch.micro: [1]}}", "11:12: spec.tasks[1].tune.task"),
    ],
)
def test_a_task_that_is_not_there_has_the_line_of_the_field_that_names_it(line: str, expected: str) -> None:
    reason = "'trian' is none of the other tasks: train (did you mean train?)"
    assert complaints(f"{HEAD}  - name: next\n{line}\n") == [f"job.yaml:{expected}: {reason}"]


def test_a_job_of_one_task_has_no_other_to_name() -> None:
    text = HEAD.replace("data: {source: chats.jsonl}", "data: {from: prepare}")
    assert complaints(text)[0].endswith("train.data.from: there is no task 'prepare': the job has no other task")


@pytest.mark.parametrize(("workers", "found"), [("auto", "auto"), ("0", 0), ("4", 4), (None, "auto")])
def test_data_workers_are_a_number_or_auto(workers: str | None, found: int | str) -> None:
    text = HEAD if workers is None else HEAD.replace("chats.jsonl}", f"chats.jsonl, workers: {workers}}}")
    (job,) = parse(text, "job.yaml")
    assert isinstance(job, JobSpec)
    train = job.spec.tasks[0].train
    assert train is not None
    assert train.data.workers == found


def test_data_workers_beside_a_service_are_refused_and_auto_is_not() -> None:
    beside = HEAD.replace("chats.jsonl}", "chats.jsonl, service: {maxWorkers: 4}, workers: auto}")
    assert parse(beside, "job.yaml")
    assert "not both" in complaints(beside.replace("workers: auto", "workers: 2"))[0]
