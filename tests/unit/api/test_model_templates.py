"""ModelTemplates: what a job says wins field by field, what excludes each other gives way, and what a template fixes cannot be changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.api import BadInput, JobSpec, ModelTemplate
from tuneyard.api.loading import load_templates, parse_documents
from tuneyard.api.schedule import ModelTemplateGoal
from tuneyard.api.template_merge import ALTERNATIVES
from tuneyard.api.templates import (
    LARGEST_BYTES,
    comparable,
    filled,
    filled_job,
    folder_of,
    kept_template,
    no_template,
    template_from,
    template_problems,
)

HEAD = "apiVersion: tuneyard.dev/v1alpha1\nkind: JobSpec\nmetadata: {name: j}\nspec:\n"
TEMPLATE = """\
apiVersion: tuneyard.dev/v1alpha1
kind: ModelTemplate
metadata: {name: small}
spec:
"""


def goal(**parts: Any) -> ModelTemplateGoal:
    return ModelTemplateGoal.model_validate(parts)


def train_of(template: ModelTemplateGoal, **task: Any) -> dict[str, Any]:
    spec = {"template": "small", "tasks": [{"name": "t", "train": task}]}
    made: dict[str, Any] = filled(spec, "small", template).spec["tasks"][0]["train"]
    return made


def complaints(text: str) -> list[str]:
    with pytest.raises(BadInput) as error:
        parse_documents(text, "job.yaml")
    return error.value.cause.splitlines()


def test_what_the_job_leaves_out_comes_from_the_template() -> None:
    template = goal(
        job={"image": "registry/base:1", "storage": {"output": "s3://team/jobs", "scratch": "50Gi"}, "env": [{"name": "A", "value": "1"}]},
        train={"model": {"name": "llama", "revision": "abc"}, "method": {"lora": {"rank": 16}}, "batch": {"global": 64}},
        resources={"sku": ["h100-80gb"], "workers": 4},
    )
    spec = {
        "template": "small",
        "storage": {"output": "s3://mine/x"},
        "env": [{"name": "B", "value": "2"}],
        "tasks": [
            {"name": "t", "train": {"data": {"source": "s3://d/x"}, "method": {"lora": {"dropout": 0.1}}}, "resources": {"workers": 2}},
            {"name": "prepare", "process": {"command": ["true"]}},
        ],
    }

    assert filled(spec, "small", template).spec == {
        "image": "registry/base:1",
        "storage": {"output": "s3://mine/x", "scratch": "50Gi"},
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "tasks": [
            {
                "name": "t",
                "train": {
                    "model": {"name": "llama", "revision": "abc"},
                    "method": {"lora": {"rank": 16, "dropout": 0.1}},
                    "batch": {"global": 64},
                    "data": {"source": "s3://d/x"},
                },
                "resources": {"sku": ["h100-80gb"], "workers": 2},
            },
            {"name": "prepare", "process": {"command": ["true"]}},
        ],
    }
    assert spec["template"] == "small", "what is given is not changed"


def test_jobs_by_one_template_write_to_folders_of_their_own() -> None:
    template = goal(job={"storage": {"output": "s3://team/jobs/"}}, fixed=["job.storage.output"])
    metadata = {"name": "j", "namespace": "maps", "uid": "0123456789"}
    made = filled({"tasks": []}, "small", template, folder_of(metadata))
    assert (made.spec["storage"]["output"], made.problems) == ("s3://team/jobs/maps/j-01234567", ())
    assert filled({"tasks": []}, "small", template, folder_of({"name": "j"})).spec["storage"]["output"] == "s3://team/jobs/j"
    free = goal(job={"storage": {"output": "s3://team/jobs/"}})
    root = filled({"storage": {"output": "s3://team/jobs"}, "tasks": []}, "small", template, folder_of(metadata))
    assert (root.spec["storage"]["output"], root.problems[0][0]) == ("s3://team/jobs/maps/j-01234567", ("spec", "storage", "output"))
    own = filled({"storage": {"output": "s3://mine"}, "tasks": []}, "small", free, folder_of(metadata))
    assert own.spec["storage"]["output"] == "s3://mine"
    assert folder_of(None) == folder_of({"name": None}) == folder_of({"name": "j", "uid": "/../../x"}) == ""


def test_ranks_take_workers_of_a_template_and_engines_instances() -> None:
    template = goal(resources={"sku": ["a100-80gb"], "workers": 8, "instances": 2}, fixed=["resources.workers"])
    tasks: list[dict[str, Any]] = [{"name": "t", "train": {}}, {"name": "s", "score": {}}, {"name": "r", "rank": {}}]
    made = filled({"tasks": tasks}, "small", template)
    assert [task["resources"] for task in made.spec["tasks"]] == [
        {"sku": ["a100-80gb"], "workers": 8},
        {"sku": ["a100-80gb"], "instances": 2},
        {"sku": ["a100-80gb"], "workers": 8},
    ]
    assert made.problems == ()
    assert template_problems(template) == []


@pytest.mark.parametrize(
    ("default", "own", "made"),
    [
        ({"method": {"lora": {"rank": 8}}}, {"method": {"full": {}}}, {"method": {"full": {}}}),
        ({"model": {"name": "a", "revision": "r"}}, {"model": {"name": "b"}}, {"model": {"name": "b"}}),
        ({"model": {"name": "a", "attention": "sdpa"}}, {"model": {"from": "t0"}}, {"model": {"from": "t0", "attention": "sdpa"}}),
        ({"model": {"name": "a"}}, {"model": {"revision": "r"}}, {"model": {"name": "a", "revision": "r"}}),
        ({"epochs": 3}, {"steps": 10}, {"steps": 10}),
        (
            {"data": {"source": "s3://a", "split": "s", "pack": True}},
            {"data": {"source": "s3://b"}},
            {"data": {"source": "s3://b", "pack": True}},
        ),
        ({"data": {"source": "s3://a", "limit": 5}}, {"data": {"mix": [{"source": "s3://b"}]}}, {"data": {"mix": [{"source": "s3://b"}]}}),
        (
            {"data": {"validationFraction": 0.1}},
            {"data": {"validation": {"source": "s3://v"}}},
            {"data": {"validation": {"source": "s3://v"}}},
        ),
        ({"strategy": {"zero": 2}}, {"strategy": "auto"}, {"strategy": "auto"}),
        ({"strategy": "auto"}, {"strategy": {"zero": 3}}, {"strategy": {"zero": 3}}),
        ({"optimizer": {"betas": [0.9, 0.95]}}, {"optimizer": {"betas": [0.8, 0.9]}}, {"optimizer": {"betas": [0.8, 0.9]}}),
        ({"epochs": 3}, {"epochs": None}, {"epochs": 3}),
        ({"model": {"name": "a", "revision": "r"}}, {"model": {"name": "a"}}, {"model": {"name": "a", "revision": "r"}}),
        ({"model": {"name": "a", "trustRemoteCode": True, "init": "scratch"}}, {"model": {"from": "t0"}}, {"model": {"from": "t0"}}),
        (
            {"data": {"fileType": "csv", "limit": 5}},
            {"data": {"source": "s3://b"}},
            {"data": {"fileType": "csv", "limit": 5, "source": "s3://b"}},
        ),
        (
            {"data": {"mix": [{"source": "s3://a"}], "temperature": 2, "whenExhausted": "stop"}},
            {"data": {"source": "s3://b"}},
            {"data": {"source": "s3://b"}},
        ),
        ({"data": {"source": "s3://a"}}, {"data": {"mix": []}}, {"data": {"source": "s3://a", "mix": []}}),
        ({"objective": "dpo", "preference": {"beta": 0.2}}, {"objective": "sft"}, {"objective": "sft"}),
        ({"optimizer": {"name": "adamw", "states": "bf16"}}, {"optimizer": {"name": "sgd"}}, {"optimizer": {"name": "sgd"}}),
        (
            {"data": {"columns": {"text": "body"}}},
            {"data": {"columns": {"prompt": "q"}}},
            {"data": {"columns": {"text": "body", "prompt": "q"}}},
        ),
    ],
)
def test_what_excludes_each_other_gives_way(default: dict[str, Any], own: dict[str, Any], made: dict[str, Any]) -> None:
    assert train_of(goal(train=default), **own) == made


TRAINS: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(
        [
            {"name": "a"},
            {"name": "a", "revision": "r"},
            {"from": "first"},
            {"from": "first", "path": "p"},
            {"name": "b", "attention": "sdpa"},
        ]
    ),
    "data": st.sampled_from(
        [
            {"source": "s3://a"},
            {"source": "s3://a", "split": "x", "fileType": "csv", "limit": 3},
            {"from": "first", "path": "x"},
            {"mix": [{"source": "s3://b"}, {"source": "s3://c"}]},
            {"source": "s3://a", "validation": {"source": "s3://v"}},
            {"source": "s3://a", "validationFraction": 0.1},
            {"source": "s3://a", "service": {"maxWorkers": 2}},
            {"source": "s3://a", "workers": 2},
        ]
    ),
    "method": st.sampled_from([{"full": {}}, {"lora": {"rank": 4}}, {"dora": {}}, {"qlora": {"rank": 8}}]),
    "epochs": st.just(2),
    "steps": st.just(9),
}


@given(st.data())
def test_a_job_and_a_template_that_each_work_work_together(data: st.DataObject) -> None:
    def some(required: tuple[str, ...]) -> dict[str, Any]:
        names = {*required, *data.draw(st.sets(st.sampled_from(sorted(TRAINS))))}
        if {"epochs", "steps"} <= names:
            names.discard(data.draw(st.sampled_from(["epochs", "steps"])))
        return {name: data.draw(TRAINS[name]) for name in sorted(names)}

    default, own = some(()), some(("model", "data"))
    first = {"name": "first", "train": {"model": {"name": "m"}, "data": {"source": "s3://d"}}}

    def job(train: dict[str, Any]) -> JobSpec:
        return JobSpec.model_validate({"metadata": {"name": "j"}, "spec": {"tasks": [first, {"name": "t", "train": train}]}})

    job(own)
    made = train_of(goal(train=default), **own)
    found = job(made).spec.tasks[1].train
    alone = job(own).spec.tasks[1].train
    assert found is not None
    assert alone is not None
    for group in ("model", "data"):
        for name in getattr(alone, group).model_fields_set:
            assert getattr(getattr(found, group), name) == getattr(getattr(alone, group), name), "what the job says wins"


def test_every_alternative_is_a_field() -> None:
    for model, groups in ALTERNATIVES.items():
        known = {field.alias or name for name, field in model.model_fields.items()}
        of_mixtures = {"mix", "temperature", "whenExhausted"}
        for group in groups:
            assert {*group.fields, *group.companions} <= known | of_mixtures, model


def test_a_job_cannot_change_what_its_template_fixes() -> None:
    template = goal(
        job={"image": "registry/base:1"},
        train={"method": {"lora": {"rank": 16}}},
        fixed=["job.image", "train.method", "resources.sku"],
        resources={"sku": ["h100-80gb"]},
    )
    tasks = [{"name": "t", "train": {"method": {"full": {}}}}, {"name": "u", "train": {"method": {"lora": {"rank": 16}}}}]
    made = filled({"image": "mine", "tasks": tasks}, "small", template)
    assert made.problems == (
        (("spec", "image"), 'the ModelTemplate small fixes it to "registry/base:1"; found "mine"'),
        (("spec", "tasks", 0, "train", "method"), 'the ModelTemplate small fixes it to {"lora": {"rank": 16}}; found {"full": {}}'),
    )
    assert filled({"tasks": tasks[1:]}, "small", template).problems == ()


def test_a_later_stage_goes_on_from_the_fixed_model_and_variables_of_the_job_are_its_own() -> None:
    template = goal(job={"env": [{"name": "A", "value": "1"}]}, train={"model": {"name": "m"}}, fixed=["train.model", "job.env"])
    first, second = {"name": "sft", "train": {}}, {"name": "dpo", "train": {"model": {"from": "sft"}}}
    assert filled({"env": [{"name": "B", "value": "2"}], "tasks": [first, second]}, "small", template).problems == ()
    other = {"name": "dpo", "train": {"model": {"from": "made"}}}
    made = {"name": "made", "process": {"command": ["true"]}}
    ((path, _),) = filled({"tasks": [made, other]}, "small", template).problems
    assert path == ("spec", "tasks", 1, "train", "model")
    ((path, _),) = filled({"env": [{"name": "A", "value": "2"}], "tasks": []}, "small", template).problems
    assert path == ("spec", "env")


def test_a_search_leaves_alone_what_is_fixed() -> None:
    template = goal(train={"strategy": {"zero": 2}, "batch": {"global": 8}}, fixed=["train.strategy", "train.batch.global"])

    def problems(**tune: Any) -> list[Any]:
        tasks = [{"name": "t", "train": {}}, {"name": "s", "tune": {"task": "t", **tune}}]
        return [path for path, _ in filled({"tasks": tasks}, "small", template).problems]

    assert problems() == [("spec", "tasks", 1, "tune")]
    assert problems(space={"strategy.zero": [1, 2], "batch.micro": [2]}) == [("spec", "tasks", 1, "tune", "space", "strategy.zero")]
    assert problems(space={"batch.micro": [2, 4]}) == []


def test_scores_of_a_ranker_take_nothing_that_is_about_language_models() -> None:
    template = goal(score={"generation": {"maxTokens": 5}, "metrics": ["rouge_l"], "rowsPerPart": 9, "data": {"prompt": "q", "limit": 7}})
    tasks = [{"name": "r", "rank": {}}, {"name": "s", "score": {"model": {"from": "r"}}}]
    score = filled({"tasks": tasks}, "small", template).spec["tasks"][1]["score"]
    assert score == {"rowsPerPart": 9, "data": {"limit": 7}, "model": {"from": "r"}}


def test_a_job_says_by_which_template_it_was_filled_in() -> None:
    job = HEAD + "  template: small\n  tasks:\n  - {name: t, train: {data: {source: x.jsonl}}}\n"
    (document, _) = parse_documents(f"{job}---\n{TEMPLATE}  train: {{model: {{name: tiny}}}}\n", "job.yaml")
    assert document.resource.metadata.annotations == {"tuneyard.dev/template": "small"}


DEEP: Any = {}
for _ in range(3_000):
    DEEP = {"x": DEEP}


@pytest.mark.parametrize(
    "spec",
    [
        {"env": [{"name": ["A"]}, 5, None], "tasks": [1, None, {"train": []}, {"train": {"model": []}}]},
        {"env": {"name": "A"}, "tasks": {"name": "t"}, "storage": [], "image": object()},
        {"tasks": [{"name": [], "train": {"strategy": DEEP}}], 5: 6},
        {"tasks": [{"name": "t", "tune": {"task": [], "space": [1]}}, {"name": "t", "score": {"model": {"from": {}}}}]},
    ],
)
def test_nothing_that_stands_in_a_job_breaks_it(spec: dict[Any, Any]) -> None:
    template = goal(
        job={"env": [{"name": "A", "value": "1"}], "image": "i", "storage": {"output": "s3://x"}},
        train={"strategy": {"zero": 1}, "model": {"name": "m"}},
        fixed=["job.image", "job.env", "train.strategy", "train.model", "job.storage"],
    )
    assert isinstance(filled(spec, "small", template, "folder").spec, dict)


def test_a_template_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot be used"):
        template_from({"metadata": {"name": "small"}, "spec": {"train": {"strategy": DEEP}}})


def test_specs_that_mean_the_same_compare_alike_with_a_template_too() -> None:
    spec = {"template": "small", "tasks": [{"name": "t", "train": {"data": {"source": "s3://d"}}}]}
    spelled = {**spec, "priority": "normal", "suspend": False, "placement": {"clusters": []}}
    assert comparable(spec) == comparable(spelled)
    assert comparable(spec) != comparable({**spec, "template": "other"})
    assert comparable(spec) != comparable({**spec, "priority": "high"})
    assert comparable({"tasks": 5}) is None


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"train": {"metod": {}}}, ("spec.train.metod", "unknown field (did you mean method?)")),
        ({"train": {"batch": {"global": 0}}}, ("spec.train.batch.global", "must be at least 1; found 0")),
        ({"resources": {"workers": "many"}}, ("spec.resources.workers", "")),
        ({"resources": {"instances": 0}, "train": {"epochs": 1}}, ("spec.resources.instances", "")),
        ({"job": {"storage": {"output": "models/here"}}}, ("spec.job.storage.output", "name a URI")),
        ({"job": {"priority": "high"}}, ("spec.job.priority", "not a field of a template")),
        ({"job": {"storage": {"outputs": "x"}}}, ("spec.job.storage.outputs", "unknown field")),
        ({"train": {"method": {"qlora": {}}, "strategy": {"zero": 3}}}, ("spec.train.method.qlora", "cannot work")),
        ({"fixed": ["train.method"]}, ("spec.fixed[0]", "not among the template's defaults")),
        ({"train": {"data": {"chatTemplate": "chat.jinja"}}}, ("spec.train.data.chatTemplate", "a path beside a file")),
        ({"train": {"data": {"columns": {"text": "x" * LARGEST_BYTES}}}}, ("spec", "bytes as JSON")),
        ({"score": {"metrics": ["exact_math"]}}, ("spec.score.metrics[0]", "none of")),
        ({"rank": {"model": {"layers": [["dlrn"]]}}}, ("spec.rank.model.layers[0][0]", "dlrm")),
    ],
)
def test_a_template_that_could_be_no_part_of_any_job_is_refused(parts: dict[str, Any], problem: tuple[str, str]) -> None:
    from tuneyard.api.loading_yaml import show_path

    found = [(show_path(path), reason) for path, reason in template_problems(goal(**parts))]
    assert any(path == problem[0] and problem[1] in reason for path, reason in found), found


def test_a_file_may_hold_the_job_and_its_template() -> None:
    job = HEAD + "  template: small\n  tasks:\n  - {name: t, train: {data: {source: x.jsonl}}}\n"
    template = TEMPLATE + "  train: {model: {name: tiny}, batch: {global: 8}}\n"
    documents = parse_documents(f"{job}---\n{template}", "job.yaml")
    found = documents[0].resource
    assert isinstance(found, JobSpec)
    assert found.spec.tasks[0].train is not None
    assert found.spec.tasks[0].train.batch.global_ == 8
    assert found.spec.template is None
    assert documents[0].value["spec"]["tasks"][0]["train"]["model"] == {"name": "tiny"}
    assert documents[0].tree.value["spec"]["template"] == "small", "what submit sends is as written"


def test_complaints_say_what_the_template_gave() -> None:
    job = HEAD + "  template: small\n  tasks:\n  - {name: t, train: {data: {source: x.jsonl}, strategy: {zero: 3}}}\n"
    template = TEMPLATE + "  train: {model: {name: tiny}, method: {qlora: {rank: 8}}}\n"
    (line,) = complaints(f"{job}---\n{template}")
    assert line.startswith("job.yaml:7:15: spec.tasks[0].train.method.qlora: 4-bit weights (qlora) under ZeRO-3 cannot work")
    assert line.endswith("(the ModelTemplate small gives it: spec.train.method.qlora)")
    fixed = template + "  fixed: [train.model]\n"
    own = job.replace("{data:", "{model: {name: other}, data:").replace(", strategy: {zero: 3}", "")
    (line,) = complaints(f"{own}---\n{fixed}")
    assert line.startswith('job.yaml:7:23: spec.tasks[0].train.model: the ModelTemplate small fixes it to {"name": "tiny"}')


def test_a_schedule_takes_a_template_too() -> None:
    text = (
        "apiVersion: tuneyard.dev/v1alpha1\nkind: Schedule\nmetadata: {name: s}\nspec:\n  cron: 0 2 * * *\n  template:\n    spec:\n"
        "      template: small\n      tasks: [{name: t, score: {data: {source: s3://b/x}}}]\n"
    )
    template = TEMPLATE + "  score: {model: {name: tiny}}\n"
    assert parse_documents(f"{text}---\n{template}", "s.yaml")
    (line,) = complaints(text)
    assert line.startswith("job.yaml:8:7: spec.template.spec.template: there is no ModelTemplate small here")


def test_templates_are_read_out_of_a_file_that_kubectl_wrote(tmp_path: Any) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(
        TEMPLATE.replace("{name: small}", "{name: small, uid: u, generation: 3, resourceVersion: '5', managedFields: []}")
        + "  train: {epochs: 2}\n"
    )
    assert load_templates(file)["small"].spec.train == {"epochs": 2}
    file.write_text(TEMPLATE + "  trian: {}\n")
    with pytest.raises(BadInput, match="unknown field"):
        load_templates(file)


def stored(kept: dict[str, Any] | None = None) -> dict[str, Any]:
    spec = {"template": "small", "tasks": [{"name": "t", "train": {"data": {"source": "s3://d"}}}]}
    return {"metadata": {"name": "j"}, "spec": spec, "status": {"template": kept} if kept else {}}


def test_a_job_that_has_begun_keeps_its_template() -> None:
    template = ModelTemplate.model_validate({"metadata": {"name": "small"}, "spec": {"train": {"model": {"name": "new"}}}})
    kept = {"name": "small", "spec": {"train": {"model": {"name": "old"}}, "ofALaterVersion": 1}}
    assert filled_job(stored(), lambda _: template)["spec"]["tasks"][0]["train"]["model"] == {"name": "new"}
    assert filled_job(stored(kept), no_template)["spec"]["tasks"][0]["train"]["model"] == {"name": "old"}
    assert kept_template(stored({**kept, "name": "other"})) is None, "the job names another one now"
    with pytest.raises(BadInput, match="there is no ModelTemplate small"):
        filled_job(stored(), no_template)
    with pytest.raises(BadInput, match="cannot be read"):
        kept_template(stored({"name": "small", "spec": {"train": 5}}))


def test_a_template_of_an_api_server_that_cannot_serve_says_so() -> None:
    with pytest.raises(BadInput, match=r"the ModelTemplate small cannot be used: spec\.train\.metod: unknown field"):
        template_from({"metadata": {"name": "small"}, "spec": {"train": {"metod": {}}}})
