"""What may change between the attempts of a run: an entry for each field, and the comparison."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest

from tuneyard.api import TrainTask
from tuneyard.api.base import Fields
from tuneyard.api.resuming import EFFECTS, Changed, Effect, changes, entry_of, settings_of
from tuneyard.api.train import Adapter, QuantizedAdapter


def task(**fields: Any) -> TrainTask:
    return TrainTask.model_validate({"model": {"name": "m"}, "data": {"source": "d.jsonl"}, **fields})


def said(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [str(change) for change in changes(settings_of(task(**before)), settings_of(task(**now)))]


def groups_in(annotation: Any) -> list[type[Fields]]:
    if inspect.isclass(annotation) and issubclass(annotation, Fields):
        return [annotation]
    return [group for inner in get_args(annotation) for group in groups_in(inner)]


def fields_of(group: type[Fields], path: str = "") -> Iterator[str]:
    for name, field in group.model_fields.items():
        where, inner = f"{path}{field.alias or name}", groups_in(field.annotation)
        if where in EFFECTS or not inner:
            yield where
        else:
            for each in inner:
                yield from fields_of(each, f"{where}{'.*' if get_origin(field.annotation) is list else ''}.")


def test_every_field_of_a_train_task_has_an_entry_and_every_entry_a_field() -> None:
    fields = {*fields_of(TrainTask), *fields_of(QuantizedAdapter, "method.*."), *fields_of(Adapter, "method.*.")}

    assert fields - {*EFFECTS} == set(), "say in tuneyard.api.resuming what a resume does with these fields"
    assert {*EFFECTS} - fields == set()


def test_every_setting_that_a_checkpoint_stores_has_an_entry() -> None:
    mix = {"mix": [{"source": "a", "weight": 1}, {"source": "b", "weight": 2}]}
    for each in (task(), task(method={"qlora": {}}), task(data=mix), task(data={"source": "d", "validation": {"source": "v"}})):
        assert {entry_of(name) for name in settings_of(each)} - {*EFFECTS} == set()


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {}, []),
        (
            {"optimizer": {"learningRate": 1e-3}},
            {"optimizer": {"learningRate": 1e-2}},
            ["optimizer.learningRate changes from 0.001 to 0.01"],
        ),
        ({}, {"optimizer": {"learningRate": 2e-5}}, []),
        ({"steps": 4}, {"epochs": 2}, ["epochs changes from unset to 2", "steps changes from 4 to unset"]),
        ({}, {"strategy": {"zero": 2}}, ["strategy.zero changes from auto to 2"]),
        ({"method": {"lora": {"rank": 4}}}, {"method": {"lora": {"rank": 4, "alpha": 8}}}, []),
        ({"method": {"lora": {"rank": 4}}}, {"method": {"lora": {"rank": 4, "alpha": 9}}}, ["method.lora.alpha changes from 8 to 9"]),
        ({"method": {"lora": {}}}, {"method": {"dora": {}}}, ["method changes from lora to dora"]),
        (
            {"data": {"mix": [{"source": "a"}]}},
            {"data": {"mix": [{"source": "a"}, {"source": "b", "name": "more"}]}},
            ["data.mix.1.source changes from unset to b", "data.mix.1.name changes from unset to more"],
        ),
    ],
)
def test_changes_are_said_by_field(before: dict[str, Any], now: dict[str, Any], expected: list[str]) -> None:
    found = said(before, now)

    assert [line for line in found if not line.endswith(("to auto", "to {}"))] == expected


def test_a_field_that_one_of_two_versions_does_not_know_is_no_change() -> None:
    now = settings_of(task())
    older = {name: value for name, value in now.items() if name != "optimizer.states"}

    assert changes(older, now) == []
    assert changes({**now, "optimizer.ofANewerVersion": 1}, now) == []


def test_secrets_reach_no_checkpoint() -> None:
    stored = settings_of(task(data={"source": "s3://key:secret@bucket/chats.jsonl"}))

    assert "secret" not in str(stored)


def test_the_effect_of_a_change_is_that_of_its_field() -> None:
    assert Changed("data.mix.12.weight", 1, 2).effect is Effect.REFUSED
    assert Changed("method.qlora.dropout", 0, 0.1).effect is Effect.NEXT_STEP
