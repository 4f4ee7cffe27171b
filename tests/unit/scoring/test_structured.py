"""JSON schemas of answers: what is refused before anything starts, and which answers follow one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.api import BadInput
from tuneyard.cli import main
from tuneyard.scoring.structured import Fits, check_schema, read_schema

SCHEMA = {"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"], "additionalProperties": False}


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "cause"),
    [
        ({"type": 7}, "no JSON schema at type"),
        ({"properties": {"a": {"enum": "b"}}}, r"at properties\.a\.enum"),
        ({"$ref": "https://example.com/schema.json"}, "refers to https://example.com"),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, "refers to other.json"),
        ({"description": "x" * 70_000}, "70,0.. characters"),
        (_deep(3000), "cannot be read"),
    ],
)
def test_a_schema_that_cannot_work_is_refused(schema: dict[str, Any], cause: str) -> None:
    with pytest.raises(BadInput, match=cause):
        check_schema(schema)


def test_a_reference_inside_is_fine() -> None:
    check_schema({"$defs": {"word": {"type": "string"}}, "items": {"$ref": "#/$defs/word"}})


@pytest.mark.parametrize("content", ["", "[]", "{", "nan", "\x00"])
def test_a_file_that_holds_no_schema(content: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(BadInput, match=r"generation\.schema"):
        read_schema(str(tmp_path / "s.json"))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_schema(str(tmp_path / "s.json"))


@pytest.mark.parametrize(
    ("answer", "follows"),
    [('{"good": true}', True), ('{"good": "yes"}', False), ('{"good": tr', False), ("", False), ("yes", False), ("[" * 100_000, False)],
)
def test_answers(answer: str, follows: bool) -> None:
    assert Fits(SCHEMA)(answer) is follows


@given(text=st.text(max_size=50))
def test_any_text_is_judged(text: str) -> None:
    assert Fits(SCHEMA)(text) in (True, False)


@pytest.mark.parametrize(("schema", "said"), [({"type": 7}, "no JSON schema at type"), ("s.json", "refers to x.json")])
def test_validate_points_at_a_bad_schema(schema: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = {"model": {"name": "org/model"}, "data": {"source": "/rows.jsonl"}, "generation": {"schema": schema}}
    spec = {"tasks": [{"name": "judge", "score": task}]}
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "a"}, "spec": spec}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    (tmp_path / "s.json").write_text('{"$ref": "x.json"}')
    main(["validate", str(tmp_path / "job.yaml")])
    err = capsys.readouterr().err
    assert "score.generation.schema" in err
    assert said in err
