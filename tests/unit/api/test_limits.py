"""No object, however written, makes a reader of it raise, overflow or loop: what is too long, too large or no time is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tuneyard.api import Schedule, Team
from tuneyard.api.limits import LARGEST_INTEGER, LONGEST_TEXT
from tuneyard.api.loading import KINDS
from tuneyard.api.quantities import parse_duration_s, parse_size_bytes
from tuneyard.api.schema import MEMBER_KINDS, crd
from tuneyard.api.tasks import WorkerRange

TEMPLATE = {"spec": {"tasks": [{"name": "score", "process": {"command": ["true"]}}]}}


def scheduled(cron: str) -> Schedule:
    return Schedule.model_validate({"metadata": {"name": "nightly"}, "spec": {"cron": cron, "template": TEMPLATE}})


@pytest.mark.parametrize(
    ("cron", "reason"),
    [
        ("0 0 30 2 *", "names a date that does not exist"),
        ("0 0 31 2,4,6 *", "names a date that does not exist"),
        ("R 0 * * *", "random field"),
        ("0 0 * *", "match pattern"),
        ("0 0 * * * 7", "match pattern"),
        ("0,1 " * 50 + "* * * *", "at most 100"),
    ],
)
def test_a_cron_line_that_never_runs_is_refused(cron: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        scheduled(cron)


def test_cron_lines_that_run_are_taken() -> None:
    for cron in ("0 2 * * *", "*/5 * * * mon-fri", "0 0 29 2 *", "0 0 L * *", "0 0 * * sun#1"):
        assert scheduled(cron).spec.cron == cron


@pytest.mark.parametrize("text", ["9" * 300 + "s", "1" * 11 + "w", "9999999w", "1h" * 6, "1e400"])
def test_a_duration_is_at_most_some_decades(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration_s(text)


@pytest.mark.parametrize("size", ["9" * 18 + "Pi", "1025Pi", 10**400])
def test_a_size_is_at_most_what_storage_could_hold(size: Any) -> None:
    with pytest.raises(ValueError):
        parse_size_bytes(size)


@pytest.mark.parametrize(("least", "most"), [(1, 10**12), (0, 1)])
def test_a_gang_has_no_more_workers_than_there_are_gpus(least: int, most: int) -> None:
    with pytest.raises(ValidationError):
        WorkerRange(min=least, max=most)


@pytest.mark.parametrize("quota", [10**400, LARGEST_INTEGER + 1, -1])
def test_a_number_is_one_that_json_keeps(quota: int) -> None:
    with pytest.raises(ValidationError):
        Team.model_validate({"metadata": {"name": "maps"}, "spec": {"quota": {"h100-80gb": quota}}})


def test_every_text_number_and_list_of_a_kind_has_a_limit() -> None:
    limits = {"string": ("maxLength", "enum", "pattern"), "integer": ("maximum", "enum"), "number": ("maximum",), "array": ("maxItems",)}
    for kind in (*KINDS, *MEMBER_KINDS):
        (version,) = crd(kind)["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]["properties"]
        for path, node in [found for part in ("spec", "status") for found in leaves(schema.get(part, {}), f"{kind}.{part}")]:
            wanted = limits.get(node.get("type", ""), ())
            assert not wanted or any(name in node for name in wanted), path


def leaves(node: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    inner = [(f"{path}.{name}", each) for name, each in node.get("properties", {}).items()]
    inner += [(f"{path}[]", node[name]) for name in ("items", "additionalProperties") if name in node]
    return [(path, node), *(found for where, each in inner for found in leaves(each, where))]


def test_metadata_is_left_to_the_api_server() -> None:
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "x" * (LONGEST_TEXT + 1)}
    assert Team.model_validate({"metadata": {"name": "maps", "annotations": notes}, "spec": {}}).metadata.annotations == notes
