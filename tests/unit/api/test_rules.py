"""Each combination that cannot work is refused, and what is said to work instead does."""

from __future__ import annotations

import pytest

from tuneyard.api import CPU, BadInput, Device, JobSpec, check_rules, check_task
from tuneyard.api.rules_case import Rule
from tuneyard.api.rules_examples import task_with
from tuneyard.api.rules_table import RULES

every_rule = pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])


def broken(rule: Rule, fix: dict[str, object] | None = None) -> list[str]:
    case = rule.example_case(task_with(rule, fix))
    violations = check_task(case.task, device=case.device, model_type=case.model_type, head_size=case.head_size)
    return [violation.rule.id for violation in violations]


def job(train: dict[str, object], **resources: object) -> JobSpec:
    task = {"name": "t", "train": {"model": {"name": "m"}, "data": {"source": "d"}, **train}, "resources": resources}
    return JobSpec.model_validate({"metadata": {"name": "j"}, "spec": {"tasks": [task]}})


@every_rule
def test_the_example_breaks_this_rule_and_no_other(rule: Rule) -> None:
    assert broken(rule) == [rule.id]


@every_rule
def test_each_nearest_combination_works(rule: Rule) -> None:
    fixes = rule.nearest(rule.example_case(task_with(rule)))
    assert bool(fixes) != bool(rule.remedy)
    for fix in fixes:
        assert broken(rule, dict(fix)) == [], fix


@pytest.mark.parametrize("strategy", [{"tensorParallel": 2}, {"contextParallel": 2}])
def test_a_batch_is_spread_over_copies_of_the_model(strategy: dict[str, object]) -> None:
    (violation,) = check_rules(job({"batch": {"global": 7, "micro": 1}, "strategy": strategy}, workers=4))

    assert violation.rule.id == "uneven-batch"
    assert "worker" not in violation.rule.refused + violation.rule.why
    assert check_rules(job({"batch": {"global": 6, "micro": 1}, "strategy": strategy}, workers=4)) == []


@pytest.mark.parametrize(("field", "workers"), [("tensorParallel", 32), ("contextParallel", 32)])
def test_a_degree_that_does_not_divide_is_refused_with_those_that_do(field: str, workers: int) -> None:
    (violation,) = check_rules(job({"batch": {"global": 32}, "strategy": {field: 3}}, workers=workers))

    assert violation.rule.id == "uneven-groups"
    assert [fix.get(f"train.strategy.{field}") for fix in violation.nearest[:3]] == [2, 4, 8]


@every_rule
def test_the_error_points_at_a_field_that_exists(rule: Rule) -> None:
    fields = task_with(rule)
    for part in rule.field.split("."):
        names = {info.alias or name: name for name, info in type(fields).model_fields.items()}
        assert part in names, rule.field
        fields = getattr(fields, names[part])
        if not hasattr(fields, "model_fields"):
            break


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        ({"service": {"maxWorkers": 2}, "limit": 5}, True),
        ({"streaming": True, "validation": {"source": "v", "limit": 5}}, True),
        ({"streaming": True, "validation": {"source": "v"}}, False),
        ({"limit": 5, "validation": {"source": "v", "limit": 5}}, False),
    ],
)
def test_a_limit_of_streamed_rows_of_a_program_is_refused_and_not_passed_over(data: dict[str, object], refused: bool) -> None:
    train = {"program": "line:Line", "data": {"source": "d", **data}}
    assert [violation.rule.id for violation in check_rules(job(train))] == ["program-limit"] * refused


def test_identifiers_are_unique() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_a_job_with_everything_left_open_breaks_nothing() -> None:
    assert check_rules(job({}), local_sku="cpu") == []


def test_auto_is_the_planners_business() -> None:
    assert check_rules(job({"strategy": {"zero": "auto", "offload": {"optimizer": "cpu"}}})) == []


def test_a_violation_carries_its_path_reason_and_nearest_combination() -> None:
    (violation,) = check_rules(job({"method": {"qlora": {}}, "strategy": {"zero": 3}}))
    assert violation.path == ("spec", "tasks", 0, "train", "method", "qlora")
    assert violation.nearest[0] == {"train.strategy.zero": 2}
    assert violation.reason == (
        "4-bit weights (qlora) under ZeRO-3 cannot work: ZeRO-3 cuts parameters into flat shards, and a 4-bit weight cannot be cut "
        "from its scales; nearest that works: strategy.zero: 2, or method: {lora: {rank: 16}}"
    )


def test_a_device_is_judged_by_its_facts() -> None:
    flash = {"model": {"name": "m", "attention": "flash"}}
    devices = {"h100-80gb": Device(sku="h100-80gb", flash=True), "t4": Device(sku="t4", bf16=False)}
    assert check_rules(job(flash, sku=["h100-80gb"]), devices) == []
    (violation,) = check_rules(job(flash, sku=["h100-80gb", "t4"]), devices)
    assert "flash attention on a device that cannot run it (on t4)" in violation.reason
    (violation,) = check_rules(job(flash), devices, local_sku="cpu")
    assert violation.device == CPU
    assert check_rules(job(flash), devices) == []  # no SKU is known: nothing to judge by


@pytest.mark.parametrize(
    ("batch", "workers", "nearest"),
    [
        ({"global": 32, "micro": 5}, "auto", [{"train.batch.micro": 4}, {"train.batch.global": 30}]),
        ({"global": 32, "micro": 8}, 3, [{"train.batch.global": 24}]),
        ({"global": 2}, 4, [{"train.batch.global": 4}]),
        ({"global": 32}, {"min": 5, "max": 7}, [{"train.batch.global": 30}]),
        ({"global": 32}, {"min": 5, "max": 8}, None),
        ({"global": 32, "micro": 4}, 8, None),
    ],
)
def test_batches_divide_into_workers(batch: dict[str, int], workers: object, nearest: list[dict[str, int]] | None) -> None:
    violations = check_rules(job({"batch": batch}, workers=workers))
    assert [list(violation.nearest) for violation in violations] == ([nearest] if nearest else [])


def test_rank_zero_is_refused_by_name() -> None:
    (violation,) = check_rules(job({"method": {"dora": {"rank": 0}}}))
    assert violation.nearest[0] == {"train.method.dora.rank": 8}


@pytest.mark.parametrize(
    ("train", "refused"),
    [
        ({"data": {"source": "d", "whenExhausted": "leave"}}, "`temperature` or `whenExhausted` without `mix`"),
        ({"data": {"mix": [{"source": "d"}, {"source": "e"}], "whenExhausted": "leave", "temperature": 3}}, None),
        ({"data": {"source": "d", "workers": 2}}, None),
        ({"data": {"source": "d", "limit": 9, "workers": 0}}, "`workers` for data that are not streamed"),
        ({"data": {"source": "d", "workers": 2, "pack": True, "lossOn": "all"}, "objective": "dpo"}, None),
        ({"objective": "dpo", "method": {"lora": {"targets": ["lm_head"]}}}, None),
    ],
)
def test_settings_without_effect_are_refused(train: dict[str, object], refused: str | None) -> None:
    assert [violation.rule.refused for violation in check_rules(job(train))] == ([refused] if refused else [])


def test_bad_numbers_never_reach_the_rules() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        job({"batch": {"micro": 0}})
    assert issubclass(BadInput, Exception)
