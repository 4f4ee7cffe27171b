"""The reader of objects: what is within the budget is read as JSON says, what is beyond is reduced, and nothing raises a RecursionError."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.kubernetes import NO_ROOM, read_event, read_list, read_object, unreadable, without_room
from tuneyard.kubernetes.reading import DEEPEST, memory_of, over_budget

DEEP = b"[" * 9_000 + b"]" * 9_000
FIELDS = b'{"f:a":' * 9_000 + b"{}" + b"}" * 9_000
BROAD = b"[" + b",".join([b"[]"] * 420_000) + b"]"
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.sampled_from(['"', "\\", '\\"', "]}", "[{", ",", '{"a":[']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)
decoders = pytest.mark.parametrize("decode", [json.loads, msgspec.json.decode], ids=["json", "msgspec"])


def written(value: Any, *, spaces: bool = False) -> bytes:
    return json.dumps(value, separators=None if spaces else (",", ":")).encode()


def item(spec: bytes, metadata: bytes = b'{"name":"a","namespace":"n","uid":"u"}', status: bytes = b'{"phase":"Running"}') -> bytes:
    return b'{"kind":"JobSpec","metadata":' + metadata + b',"spec":' + spec + b',"status":' + status + b"}"


@given(value=st.dictionaries(st.text(), values, max_size=5), spaces=st.booleans())
def test_what_is_within_the_budget_is_read_as_json_says(value: dict[str, Any], spaces: bool) -> None:
    assert read_object(written(value, spaces=spaces)) == value


@given(value=values, spaces=st.booleans())
def test_a_part_beyond_the_budget_costs_no_other_part_a_letter(value: Any, spaces: bool) -> None:
    found = read_object(item(DEEP, status=written(value, spaces=spaces)))
    assert (found["status"], found["spec"]) == (value, {})
    assert list(unreadable(found)) == ["spec"]


@given(value=values)
def test_one_object_costs_no_other_object_of_its_list_a_letter(value: Any) -> None:
    others = [{"metadata": {"name": "before"}, "spec": value}, {"metadata": {"name": "after"}, "spec": [value]}]
    items = b",".join([written(others[0]), item(DEEP), item(FIELDS), written(others[1])])
    found = read_list(b'{"kind":"List","metadata":{"resourceVersion":"7"},"items":[' + items + b"]}\n")
    assert [found["items"][0], found["items"][3]] == others
    assert [each["metadata"]["name"] for each in found["items"]] == ["before", "a", "a", "after"]
    assert found["metadata"] == {"resourceVersion": "7"}


@decoders
def test_plain_fields_stay(decode: Any) -> None:
    spec = b'{"cancelled":true,"team":"maps","tasks":' + DEEP + b',"labels":{"a":"b"},"long":"' + b"x" * 5_000 + b'"}'
    kind, found = read_event(b'{"type":"MODIFIED","object":' + item(spec) + b"}\n", decode)
    assert (kind, found["spec"]) == ("MODIFIED", {"cancelled": True, "team": "maps"})
    assert unreadable(found) == {"spec": f"it is nested deeper than {DEEPEST} levels"}
    assert found["status"] == {"phase": "Running"}


@decoders
def test_metadata_keep_what_an_object_is_found_and_removed_by(decode: Any) -> None:
    kept = {
        "name": "a",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "7",
        "finalizers": ["f"],
        "labels": {"a": "]}"},
        "annotations": {"b": "c"},
        "ownerReferences": [{"uid": "s"}],
        "deletionGracePeriodSeconds": 0,
    }
    managed = b',"managedFields":[{"operation":"Apply","fieldsV1":' + FIELDS + b"}]}"
    found = read_object(item(b'{"tasks":[1]}', written(kept)[:-1] + managed), decode)
    assert (found["metadata"], found["spec"]) == ({**kept, "managedFields": [{"operation": "Apply"}]}, {"tasks": [1]})
    assert not unreadable(found)  # nothing that is asked for is missing
    assert read_object(item(DEEP, written(kept)), decode)["metadata"] == kept, "a deep spec costs no metadata"


@decoders
def test_metadata_that_take_too_much_say_so_and_keep_finalizers_owners_and_the_labels_of_the_platform(decode: Any) -> None:
    many = {f"a{number}": "" for number in range(90_000)}
    kept = {"name": "a", "finalizers": [*many], "ownerReferences": [{"uid": uid} for uid in many]}
    found = read_object(item(b"{}", written({**kept, "labels": many | {"tuneyard.dev/job": "bot"}, "annotations": many})), decode)
    labels, annotations = found["metadata"].pop("labels"), found["metadata"].pop("annotations")
    assert found["metadata"] == kept
    assert (len(labels), labels["tuneyard.dev/job"], len(annotations)) == (100, "bot", 100)
    why = unreadable(found)["metadata"]
    assert "labels: it would take about" in why
    assert "annotations: it would take about" in why
    assert "finalizers" not in why


@decoders
@pytest.mark.parametrize("spec", [DEEP, FIELDS, BROAD, b"{" + BROAD + b"}"], ids=["lists", "maps", "broad", "no JSON"])
def test_nothing_but_a_value_error_comes_of_it(spec: bytes, decode: Any) -> None:
    try:
        assert read_object(item(spec), decode)["spec"] == {}
    except ValueError:
        assert spec.startswith(b"{[")


@pytest.mark.parametrize("data", [b"", b"[]", b"5", b"{", b"}", DEEP, DEEP[:-1], b'{"a":' + DEEP, b"{}" + DEEP, b'"' + DEEP, b"]" + DEEP])
def test_what_is_no_object_is_no_object(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"no |Expecting|Extra|Unterminated"):
        read_object(data)
    with pytest.raises(ValueError, match=r"no |Expecting|Extra|Unterminated"):
        read_list(data)


def test_the_deepest_object_that_is_read_has_the_levels_that_the_budget_names() -> None:
    for levels, fits in ((DEEPEST, True), (DEEPEST + 1, False)):
        data = b"[" * levels + b"]" * levels
        assert bool(over_budget(data)) is not fits
        assert bool(over_budget(b"[1,[]," + data[1:-1] + b"]")) is not fits
    assert not over_budget(written({"a": "[" * 1_000, "b": '"' + "[" * 1_000}))


def test_memory_is_that_of_values_and_not_of_bytes_alone() -> None:
    assert memory_of(BROAD) > 30e6
    assert memory_of(written({"a": "[],{}" * 100})) < 1_000


def test_what_has_no_room_in_memory_takes_little_of_it() -> None:
    long = {f"a{number}": "x" * 4_000 for number in range(60)}
    metadata = {"name": "a", "namespace": "n", "uid": "u", "labels": {"team": "maps"}, "annotations": {"user": "ada", **long}}
    managed = [{"operation": "Apply", "fieldsV1": {"f:spec": long}}]
    found = without_room({"metadata": {**metadata, "managedFields": managed}, "spec": {"cancelled": True, "env": [long]}}, "no room")
    assert found["metadata"] == {**metadata, "annotations": {"user": "ada"}, "managedFields": [{"operation": "Apply"}]}
    assert (found["spec"], unreadable(found)) == ({"cancelled": True}, {NO_ROOM: "no room"})
    assert without_room(found, "no room") == found
    run = {"name": "a", "labels": {f"a{number}": "" for number in range(150)} | {"tuneyard.dev/schedule": "week"}}
    assert without_room({"metadata": run}, "no room")["metadata"]["labels"]["tuneyard.dev/schedule"] == "week"
