"""Transforms of a rank task, as a JobSpec has them: what is refused by names and parameters alone, and that a pipeline takes the rest."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.builders.rankers import rank_task

from tuneyard.api import BadInput, RankTask, Transform, parse
from tuneyard.api.transforms import PARAMETERS, Operation, leak, roots
from tuneyard.data.tables import Pipeline
from tuneyard.data.tables.transforms import OPERATIONS
from tuneyard.data.tables.transforms.pipeline import _KINDS

HASH = {"op": "sigrid_hash", "inputs": ["user"], "output": "user_id", "tableSize": 100}
HOUR = {"op": "get_local_hour", "inputs": ["time"], "output": "hour", "timeZone": "Europe/Vienna"}
NORMALIZE = {"op": "normalize", "inputs": ["age"], "output": "age"}
EVERY_PARAMETER: dict[str, Any] = {
    "tableSize": 9,
    "seed": 3,
    "modulus": 7,
    "mapping": {"5": -1},
    "default": 2,
    "count": 4,
    "length": 2,
    "borders": [1, 2.5],
    "low": 0,
    "high": 1,
    "power": 0.5,
    "shift": 1,
    "epsilon": 0.1,
    "timeZone": "UTC",
    "key": "user",
    "rate": 0.5,
    "mean": 2.5,
    "variance": 0.5,
}


def task(*steps: dict[str, Any], sparse: tuple[str, ...] = ("user_id",), dense: tuple[str, ...] = ("age",), **fields: Any) -> RankTask:
    features = {"dense": list(dense), "sparse": [{"name": name} for name in sparse]}
    return rank_task(features=features, transforms=list(steps), **fields)


def refused(*steps: dict[str, Any], **fields: Any) -> str:
    """What `tuneyard validate` says."""
    body = {"table": {"source": "s3://ads/days"}, "label": "clicked", "model": {"layers": [["linear"]]}, "transforms": list(steps)}
    body |= {"features": {"dense": ["age"], "sparse": [{"name": "user_id"}]}} | fields
    job = {"kind": "JobSpec", "metadata": {"name": "job"}, "spec": {"tasks": [{"name": "ranker", "rank": body}]}}
    with pytest.raises(BadInput) as error:
        parse(yaml.safe_dump({"apiVersion": "tuneyard.dev/v1alpha1"} | job), "job.yaml")
    return error.value.cause


def test_outputs_may_be_features_labels_and_slices() -> None:
    clicked = {"op": "clamp", "inputs": ["clicks"], "output": "clicked", "low": 0, "high": 1}
    body = task(HASH, HOUR, clicked, validationFraction=0.1, slices=["hour", "device"])
    assert body.named == ["age", "user_id", "clicked", "hour", "device"]
    assert Pipeline.of(step.as_step() for step in body.transforms).reads(body.named) == ("age", "device", "clicks", "time", "user")


def test_a_chain_may_replace_what_it_reads() -> None:
    steps = [
        {"op": "first_x", "inputs": ["seen"], "output": "recent", "count": 20},
        {"op": "sigrid_hash", "inputs": ["recent"], "output": "recent", "tableSize": 100},
        {"op": "clamp", "inputs": ["float_features[12]"], "output": "float_features[12]", "low": 0, "high": 9},
        {"op": "cartesian", "inputs": ["recent", "user"], "output": "user_id", "tableSize": 100},
    ]
    body = task(*steps, sparse=("recent", "user_id"), dense=("float_features[12]",))
    pipeline = Pipeline.of(step.as_step() for step in body.transforms)
    assert pipeline.reads(body.named) == ("clicked", "user", "float_features[12]", "seen")


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([HASH | {"op": "sigrid_has"}], "transforms[0].op: 'sigrid_has' is none of: "),
        ([HASH | {"op": "sigrid_has"}], "(did you mean sigrid_hash?)"),
        ([HASH | {"op": "one_hot"}], "'one_hot' is none of"),
        ([HASH | {"tablesize": 9}], "transforms[0].tablesize: unknown field (did you mean tableSize?)"),
        ([{name: HASH[name] for name in ("op", "inputs", "output")}], "transforms[0].tableSize: required by sigrid_hash"),
        ([HASH | {"modulus": 9}], "transforms[0].modulus: sigrid_hash takes tableSize and seed"),
        ([HASH | {"tableSize": 0}], "transforms[0].tableSize: must be at least 1"),
        ([HASH | {"inputs": ["a", "b"]}], "transforms[0].inputs: sigrid_hash takes 1 input; found 2"),
        ([HASH | {"inputs": "user"}], "write inputs: [user]"),
        ([HASH | {"inputs": [""]}], "must not be empty"),
        ([HASH | {"output": None}], "transforms[0].output: required by sigrid_hash"),
        ([HOUR | {"timeZone": "Europe/Wien"}], "transforms[0].timeZone: 'Europe/Wien' is not an IANA time zone"),
        ([HOUR | {"timeZone": "../../etc/passwd"}], "is not an IANA time zone"),
        ([{"op": "clamp", "inputs": ["age"], "output": "age", "low": 2, "high": 1}], "transforms[0].low: low 2 is above high 1"),
        ([{"op": "bucketize", "inputs": ["age"], "output": "age", "borders": [1, 1]}], "transforms[0].borders: borders must ascend"),
        ([{"op": "bucketize", "inputs": ["age"], "output": "age", "borders": [float("nan")]}], "transforms[0].borders"),
        ([{"op": "map_id", "inputs": ["u"], "output": "user_id", "mapping": {"a": 1}}], "mapping.a: expected a whole number; found 'a'"),
        ([{"op": "sampling", "key": "user", "rate": 0}], "transforms[0].rate: must be above 0"),
        ([{"op": "sampling", "key": "user", "rate": 0.5, "output": "x"}], "transforms[0].output: sampling makes no feature"),
        ([{"op": "sampling", "rate": 0.5}], "transforms[0].key: required by sampling"),
        (["sigrid_hash"], "transforms[0]: expected a group"),
        ([{"op": "union", "inputs": ["a"], "output": "user_id"}], "transforms[0].inputs: union takes 2 to 64 inputs; found 1"),
        ([{"op": "union", "inputs": ["a"] * 65, "output": "user_id"}], "transforms[0].inputs: "),
        ([{"op": "sort_by_score", "inputs": ["a"], "output": "user_id"}], "transforms[0].inputs: sort_by_score takes 2 inputs; found 1"),
        ([NORMALIZE | {"variance": 2}], "transforms[0].mean: variance is given without mean: give both, or neither"),
        ([NORMALIZE | {"mean": 2}], "transforms[0].variance: mean is given without variance: give both, or neither"),
        ([NORMALIZE | {"mean": 2, "variance": 0}], "transforms[0].variance: must be above 0"),
    ],
)
def test_a_step_that_cannot_be_meant_is_refused_by_its_place(steps: list[Any], said: str) -> None:
    assert said in refused(*steps)


READS_LATER = {"op": "sigrid_hash", "inputs": ["user_id"], "output": "user", "tableSize": 9}


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([HASH | {"output": "usr_id"}], "transforms[0].output: nothing reads usr_id: name it among features, labels or slices"),
        ([HASH | {"output": "usr_id"}], "(did you mean user_id?)"),
        ([HASH, HASH | {"inputs": ["device"]}], "transforms[1].output: transforms[0] makes user_id too"),
        (
            [HASH | {"inputs": ["hour"]}, HOUR],
            "transforms[1].output: transforms[0] reads hour before this step makes it: put this step first",
        ),
        ([HASH, READS_LATER], "transforms[1].output: transforms[0] reads user before this step makes it"),  # a circle
        ([HASH, {"op": "sampling", "key": "hour", "rate": 0.5}, HOUR], "transforms[2].output: transforms[1] reads hour before"),
        ([HASH | {"inputs": ["clicked"]}], "feature user_id is made from label clicked"),
        (
            [{"op": "clamp", "inputs": ["age"], "output": "clicked", "low": 0, "high": 1}, HASH],
            "feature age is made from age, from which label clicked is made",
        ),
        (
            [{"op": "clamp", "inputs": ["n"], "output": "clicked", "low": 0, "high": 1}, HASH | {"inputs": ["clicked"]}],
            "feature user_id is made from n, from which label clicked is made",
        ),
        (
            [HASH, {"op": "sampling", "key": "clicked", "rate": 0.5}],
            "transforms[1].key: sampling by clicked keeps all rows of a label or none",
        ),
        (
            [HASH, {"op": "sampling", "key": "n", "rate": 0.5}, {"op": "clamp", "inputs": ["n"], "output": "clicked", "low": 0, "high": 1}],
            "transforms[1].key: sampling by n keeps all rows",
        ),
        (
            [NORMALIZE, HASH | {"inputs": ["age"]}, {"op": "sampling", "key": "user_id", "rate": 0.5}],
            "transforms[2].key: user_id is normalized by the rows that sampling leaves: sample by another key, or give mean and variance",
        ),
        ([HASH | {"output": "clicked"}], "nothing reads"),
    ],
)
def test_an_order_of_steps_that_loses_or_leaks_is_refused(steps: list[dict[str, Any]], said: str) -> None:
    if said == "nothing reads":  # a label that a hash makes is odd, and no error of its own
        assert task(HASH | {"output": "clicked"}).named == ["age", "user_id", "clicked"]
    else:
        assert said in refused(*steps)


def test_a_long_mapping_is_refused_in_words_and_a_fair_one_taken() -> None:
    step = {"op": "map_id", "inputs": ["user"], "output": "user_id"}
    assert task(step | {"mapping": {number: number % 7 for number in range(10_000)}}).transforms[0].mapping
    with pytest.raises(ValidationError, match="at most 10000 items"):
        task(step | {"mapping": dict.fromkeys(range(100000), 1)})


def test_negatives_are_drawn_for_one_label_alone() -> None:
    assert rank_task(negativeRate=0.1).negative_rate == 0.1
    for fields, said in (({"negativeRate": 0}, "greater than 0"), ({"negativeRate": 0.5, "moreLabels": ["bought"]}, "cannot be corrected")):
        with pytest.raises(ValidationError, match=said):
            rank_task(**fields)


def test_operations_and_their_parameters_are_those_of_the_pipeline() -> None:
    assert set(get_args(Operation)) == set(PARAMETERS) == set(OPERATIONS) - {"compute_score", "one_hot"}
    for op, takes in PARAMETERS.items():
        fields = {name: field for name, field in _KINDS[op].model_fields.items() if name not in ("op", "inputs", "output")}
        assert set(takes.needed) == {name for name, field in fields.items() if field.is_required()}, op
        assert set(takes.optional) == {name for name, field in fields.items() if not field.is_required()}, op
        assert (takes.inputs, takes.most_inputs) == (getattr(_KINDS[op], "takes", 0), getattr(_KINDS[op], "most", None)), op


@pytest.mark.parametrize("op", sorted(PARAMETERS))
def test_a_step_survives_yaml_and_a_pipeline_takes_it(op: str) -> None:
    takes = PARAMETERS[op]
    names = {name: field.alias or name for name, field in Transform.model_fields.items()}
    values = {names[name]: EVERY_PARAMETER[str(names[name])] for name in (*takes.needed, *takes.optional)}
    values |= {"op": op} | ({} if op == "sampling" else {"inputs": ["a", "b"][: takes.inputs], "output": "c"})
    step = Transform.model_validate(values)
    again = Transform.model_validate(yaml.safe_load(yaml.safe_dump(step.to_yaml_dict())))
    assert again == step
    assert Pipeline.of([again.as_step()]).steps[0].op == op


@settings(max_examples=60, deadline=None)
@given(values=st.fixed_dictionaries({"op": st.sampled_from(sorted(PARAMETERS))}, optional={
    "inputs": st.lists(st.sampled_from("ab"), max_size=2), "output": st.just("c"), "tableSize": st.integers(-1, 2**60),
    "seed": st.integers(-1, 2**60), "modulus": st.integers(-1, 5), "mapping": st.dictionaries(st.integers(), st.integers(), max_size=2),
    "count": st.integers(-1, 3), "length": st.integers(-1, 70), "borders": st.lists(st.floats(), max_size=3), "low": st.floats(),
    "high": st.floats(), "power": st.floats(), "mean": st.floats(), "variance": st.floats(), "epsilon": st.floats(0, 1),
    "key": st.just("a"), "rate": st.floats(),
}))  # fmt: skip
def test_whatever_the_api_takes_a_pipeline_takes(values: dict[str, Any]) -> None:
    takes = PARAMETERS[values["op"]]
    names = {Transform.model_fields[name].alias or name for name in (*takes.needed, *takes.optional)} | {"op", "inputs", "output"}
    try:
        step = Transform.model_validate({name: value for name, value in values.items() if name in names})
    except ValidationError:
        return
    Pipeline.of([step.as_step()])


def test_roots_are_followed_through_chains() -> None:
    steps = [(("a",), "b"), (("b", "c"), "d"), (("d",), "d")]
    assert roots(steps, ["a", "b", "d", "x"]) == {"a": {"a"}, "b": {"a"}, "d": {"a", "c"}, "x": {"x"}}
    assert leak(steps, ["d"], ["a"]) == "feature d is made from label a: the ranker would read what it has to predict"
    assert leak(steps, ["d"], ["x"]) is None
