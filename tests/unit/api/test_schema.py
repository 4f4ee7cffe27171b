"""The CRDs keep the rules that an API server has for structural schemas, and the JSON schema judges as the models do."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml
from tests.unit.api.test_loading_fuzz import FULL

from tuneyard.api.docs import pages
from tuneyard.api.loading import KINDS
from tuneyard.api.schema import MEMBER_KINDS, crd, crds_yaml, defaults_schema, json_schema

every_kind = pytest.mark.parametrize("kind", KINDS)
ALLOWED = {
    *("type", "properties", "required", "items", "additionalProperties", "description", "default", "enum", "pattern", "format", "anyOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties"),
    *("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
}
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}


read_pages = cache(pages)


@cache
def openapi(kind: str) -> dict[str, Any]:
    (version,) = crd(kind)["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]  # type: ignore[no-any-return]


def nodes(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    children = [(f"{path}.{name}", inner) for name, inner in schema.get("properties", {}).items()]
    children += [(f"{path}[]", schema[key]) for key in ("items", "additionalProperties") if key in schema]
    return [(path, schema), *(found for name, inner in children for found in nodes(inner, name))]


@every_kind
def test_the_schema_is_structural(kind: str) -> None:
    for path, node in nodes(openapi(kind)):
        assert set(node) <= ALLOWED, path
        untyped = node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")
        assert node.get("type") in TYPES or untyped, path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert "properties" not in node or node["type"] == "object", path
        assert "items" in node or node.get("type") != "array", path
        assert all(isinstance(node.get(key, True), bool) for key in ("exclusiveMinimum", "exclusiveMaximum")), path
        if node.get("x-kubernetes-int-or-string"):
            assert "type" not in node, path
            assert node.get("anyOf") in (None, [{"type": "integer"}, {"type": "string"}]), path
        else:
            assert "anyOf" not in node, path


@pytest.mark.parametrize("kind", [*KINDS, *MEMBER_KINDS])
def test_every_field_says_what_it_is(kind: str) -> None:
    for path, node in nodes(openapi(kind)):
        assert node.get("description") or path.endswith("[]") or path in ("", ".metadata"), (
            f"{path}: give the field of the model a description"
        )
    for name, group in defaults_schema(kind)["$defs"].items():
        assert group.get("description"), f"{name}: give the model a docstring"
        for field, node in group.get("properties", {}).items():
            assert node.get("description") or "$ref" in node or "anyOf" in node, f"{name}.{field}: give it a description"


@every_kind
def test_a_field_that_may_be_left_out_says_what_then_happens(kind: str) -> None:
    definitions = defaults_schema(kind)["$defs"]
    reported = {name for name in definitions if name.endswith("Status")} | {
        "Condition",
        "Attempt",
        "AttemptSummary",
        "Progress",
        "StageTime",
        "StartTimes",
        "Reason",
    }
    for name in definitions.keys() - reported:
        for field, node in definitions[name].get("properties", {}).items():
            kinds = {branch.get("type") for branch in node.get("anyOf", [])}
            if "null" in kinds and not any("$ref" in branch for branch in node["anyOf"]):
                said = "default:" in node["description"] or "exactly one of" in node["description"]
                assert said, f"{name}.{field}: say 'default: …' in its description"


def test_a_duration_and_a_size_say_how_they_are_written() -> None:
    spec = openapi("JobSpec")["properties"]["spec"]["properties"]
    assert "(seconds, or a duration such as 90s, 15m, 2h, 2d)" in spec["deadline"]["description"]
    assert "(bytes, or a size such as 500M, 40Gi, 3Ti)" in spec["storage"]["properties"]["scratch"]["description"]
    assert "| `sharedMemory` | bytes, or a size such as 500M, 40Gi, 3Ti | `8Gi` |" in read_pages()["cluster.md"]


@pytest.mark.parametrize("kind", [*KINDS, *MEMBER_KINDS])
def test_metadata_limits_the_name_alone_as_api_servers_demand(kind: str) -> None:
    metadata = openapi(kind)["properties"]["metadata"]
    assert (set(metadata), set(metadata["properties"])) == ({"type", "properties"}, {"name"})


@every_kind
def test_defaults_are_what_their_field_holds(kind: str) -> None:
    for path, node in nodes(openapi(kind)):
        if "default" not in node:
            continue
        assert node["default"] is not None, path
        assert "type" not in node or isinstance(node["default"], TYPES[node["type"]]), path
        if "enum" in node:
            assert node["default"] in node["enum"], path
        if isinstance(node["default"], dict):
            assert not set(node.get("required", [])) - set(node["default"]), path


@every_kind
def test_cel_rules_speak_of_fields_that_exist(kind: str) -> None:
    for path, node in nodes(openapi(kind)):
        for rule in node.get("x-kubernetes-validations", []):
            assert rule["message"], path
            for field in re.findall(r"self\.(\w+)", rule["rule"]):
                assert field in node["properties"], f"{path}: {rule['rule']}"


@every_kind
def test_the_definition_has_what_kubectl_shows(kind: str) -> None:
    definition = crd(kind)
    assert definition["metadata"]["name"] == f"{definition['spec']['names']['plural']}.tuneyard.dev"
    (version,) = definition["spec"]["versions"]
    assert version["additionalPrinterColumns"][-1]["name"] == "Age"
    assert ("status" in openapi(kind)["properties"]) == ("status" in version.get("subresources", {}))
    names = {path for path, _ in nodes(openapi(kind))}
    for column in version["additionalPrinterColumns"][:-1]:
        if column["jsonPath"].startswith(".metadata."):
            continue  # API servers know it, and the schema of a CRD may not say more of it
        assert re.sub(r"\[.*?\)?\]", "[]", column["jsonPath"]) in names


def test_short_names_are_unique() -> None:
    names = [crd(kind)["spec"]["names"]["shortNames"][0] for kind in KINDS]
    assert len(set(names)) == len(names)


def test_the_fields_that_can_be_a_number_or_a_word() -> None:
    train = openapi("JobSpec")["properties"]["spec"]["properties"]["tasks"]["items"]["properties"]["train"]["properties"]
    micro = train["batch"]["properties"]["micro"]
    assert (micro["x-kubernetes-int-or-string"], micro["minimum"], micro["pattern"]) == (True, 1, "^(auto)$")
    data_workers = train["data"]["properties"]["workers"]
    assert (data_workers["minimum"], data_workers["maximum"]) == (0, 256)
    assert (data_workers["x-kubernetes-int-or-string"], data_workers["pattern"]) == (True, "^(auto)$")
    strategy = {key: value for key, value in train["strategy"].items() if key != "description"}
    assert strategy == {"x-kubernetes-preserve-unknown-fields": True}


def test_api_servers_fill_in_nothing_of_a_job_which_would_leave_no_place_for_a_template() -> None:
    schedule = openapi("Schedule")["properties"]["spec"]["properties"]
    for job in (openapi("JobSpec")["properties"]["spec"], schedule["template"]["properties"]["spec"]):
        assert [path for path, node in nodes(job) if "default" in node] == []
        tasks = job["properties"]["tasks"]["items"]["properties"]
        assert not any(tasks[kind].get("required") for kind in ("train", "score", "rank"))
        assert "default: 32" in tasks["train"]["properties"]["batch"]["properties"]["global"]["description"]
    assert schedule["concurrency"]["default"] == "forbid"


def test_the_crds_are_one_yaml_stream() -> None:
    assert [document["spec"]["names"]["kind"] for document in yaml.safe_load_all(crds_yaml())] == list(KINDS)
    assert "&id" not in crds_yaml()


def test_the_json_schema_judges_as_the_models_do() -> None:
    right = yaml.safe_load(FULL.replace("2e-4", "0.0002"))
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.validate(right)
    wrong = yaml.safe_load(FULL.replace("2e-4", "0.0002").replace("objective: sft", "objective: stf"))
    assert not validator.is_valid(wrong)
    assert not validator.is_valid({**right, "kind": "Jobspec"})


def test_one_kind_alone() -> None:
    schema = json_schema("Team")
    assert jsonschema.Draft202012Validator(schema).is_valid(
        {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Team", "metadata": {"name": "maps"}, "spec": {"quota": {"h100-80gb": 8}}}
    )


def test_reference_pages_name_every_rule_and_field() -> None:
    from tuneyard.api.rules_table import RULES

    written = read_pages()
    assert all(f"### {rule.id}\n" in written["combinations.md"] for rule in RULES)
    for field in ("learningRate", "maxLength", "secretKeyRef", "quantization", "kvCache", "expectedStart"):
        assert f"| `{field}` |" in written["jobspec.md"]


@pytest.mark.parametrize("kind", [*KINDS, *MEMBER_KINDS])
def test_each_kind_has_a_page_with_all_its_fields(kind: str) -> None:
    page = read_pages()[f"{kind.lower()}.md"]
    for path, _ in nodes(openapi(kind)):
        field = path.rpartition(".")[2]
        inside_a_job = kind == "Schedule" and path.startswith(".spec.template.spec.")
        if path.startswith((".spec.", ".status.")) and not field.endswith("[]") and not inside_a_job:
            assert f"| `{field}` |" in page, path


REFERENCES = re.compile(r"\b(self|t|other)((?:\.\w+)+)(\(?)")


def unguarded(rule: str, node: dict[str, Any]) -> set[str]:
    """Optional fields on the way to a field that a CEL rule reads, which the rule does not test by `has`."""
    roots = {"self": node, **dict.fromkeys(("t", "other"), node.get("properties", {}).get("tasks", {}).get("items", {}))}
    found = set()
    for name, fields, is_method in REFERENCES.findall(rule):
        path, at = name, roots[name]
        parts = fields.split(".")[1:]
        for part in parts[: -1 if is_method else None]:
            is_required, path, at = part in at.get("required", []), f"{path}.{part}", at.get("properties", {}).get(part, {})
            if not is_required and f"has({path})" not in rule:
                found.add(path)
    return found


def test_a_rule_of_an_api_server_reads_no_field_that_may_be_absent_without_a_test() -> None:
    rules = [
        (path, rule["rule"], node)
        for kind in KINDS
        for path, node in nodes(openapi(kind))
        for rule in node.get("x-kubernetes-validations", [])
    ]
    assert len({rule for _, rule, _ in rules}) > 30

    found = {f"{path}: {each}" for path, rule, node in rules for each in unguarded(rule, node)}
    assert found == set(), "an API server refuses an object where a rule reads an absent field"
    assert unguarded("self.model.startsWith('.')", {"properties": {"model": {}}}) == {"self.model"}
