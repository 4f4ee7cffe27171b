"""Transforms of a rank task: steps that make features from the columns of a table, row by row, before the ranker sees them.

They are declared here, and `data.tables.Pipeline` runs them. The names tell which columns a step reads and makes, so that a wrong order, an
unused output or a leaked label is refused before any table is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from tuneyard.api.base import Fields, located
from tuneyard.api.loading_reasons import did_you_mean

Column = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Operation = Literal[
    "bucketize",
    "box_cox",
    "cartesian",
    "clamp",
    "enumerate",
    "first_x",
    "get_local_hour",
    "id_list_transform",
    "log1p",
    "logit",
    "map_id",
    "n_gram",
    "normalize",
    "positive_modulus",
    "sampling",
    "sigrid_hash",
    "sort_by_score",
    "union",
]
"""Operations of `data.tables.Pipeline` whose output a ranker can read: no maps (compute_score), no vectors (one_hot)."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of an operation: required ones, optional ones, and the number of inputs, which may be up to `most_inputs`."""

    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    inputs: int = 1
    most_inputs: int | None = None

    def takes(self, inputs: int) -> bool:
        return self.inputs <= inputs <= (self.most_inputs or self.inputs)

    @property
    def inputs_in_words(self) -> str:
        if self.most_inputs is not None:
            return f"{self.inputs} to {self.most_inputs} inputs"
        return f"{self.inputs or 'no'} input{'s' * (self.inputs != 1)}"


MOST_UNITED = 64
"""Inputs of a `union`."""


PARAMETERS: Mapping[str, Parameters] = {
    "bucketize": Parameters(("borders",)),
    "box_cox": Parameters(("power",), ("shift",)),
    "cartesian": Parameters(("table_size",), ("seed",), inputs=2),
    "clamp": Parameters(("low", "high")),
    "enumerate": Parameters(),
    "first_x": Parameters(("count",)),
    "get_local_hour": Parameters(("time_zone",)),
    "id_list_transform": Parameters(inputs=2),
    "log1p": Parameters(),
    "logit": Parameters((), ("epsilon",)),
    "map_id": Parameters(("mapping",), ("default",)),
    "n_gram": Parameters(("length", "table_size"), ("seed",)),
    "normalize": Parameters((), ("mean", "variance")),
    "positive_modulus": Parameters(("modulus",)),
    "sampling": Parameters(("key", "rate"), ("seed",), inputs=0),
    "sigrid_hash": Parameters(("table_size",), ("seed",)),
    "sort_by_score": Parameters((), ("count",), inputs=2),
    "union": Parameters(inputs=2, most_inputs=MOST_UNITED),
}


class Transform(Fields):
    """A step that makes a feature from others, or that drops rows (`sampling`). Operations: docs/tables.md, Transform."""

    op: Operation = Field(description="operation of the step")
    inputs: list[Column] = Field(
        default_factory=list, max_length=MOST_UNITED, description="columns of the table, or outputs of earlier steps"
    )
    output: Column | None = Field(
        default=None, description="name of the feature that is made, or of an input, which it replaces; default: none, for sampling"
    )
    table_size: int | None = Field(
        default=None, ge=1, description="sigrid_hash, cartesian, n_gram: hashes lie from 0 to tableSize - 1; default: none"
    )
    seed: int | None = Field(default=None, ge=0, description="sigrid_hash, cartesian, n_gram, sampling: of the hash; default: 0")
    modulus: int | None = Field(default=None, ge=1, description="positive_modulus: the divisor; default: none")
    mapping: dict[int, int] | None = Field(
        default=None, min_length=1, description="map_id: the new id of each id, of 10,000 at most; default: none"
    )
    default: int | None = Field(default=None, description="map_id: of ids that mapping lacks; default: 0")
    count: int | None = Field(default=None, ge=0, description="first_x, sort_by_score: ids that stay; default: none, of sort_by_score all")
    length: int | None = Field(default=None, ge=1, le=64, description="n_gram: ids that are hashed together; default: none")
    borders: list[float] | None = Field(
        default=None, min_length=1, description="bucketize: lower ends of the buckets, ascending; default: none"
    )
    low: float | None = Field(default=None, description="clamp: the least value; default: none")
    high: float | None = Field(default=None, description="clamp: the largest value; default: none")
    power: float | None = Field(default=None, description="box_cox: the exponent, 0 for the logarithm; default: none")
    shift: float | None = Field(default=None, description="box_cox: added to the value before; default: 0")
    mean: float | None = Field(default=None, description="normalize: is subtracted; default: the mean of the training rows")
    variance: float | None = Field(
        default=None, gt=0, description="normalize: its root is the divisor; default: the variance of the training rows"
    )
    epsilon: float | None = Field(default=None, gt=0, lt=0.5, description="logit: distance from 0 and 1 that is kept; default: 1e-6")
    time_zone: str | None = Field(
        default=None, max_length=64, description="get_local_hour: IANA name, such as Europe/Vienna; default: none"
    )
    key: Column | None = Field(
        default=None, description="sampling: the column whose hash decides; rows of one key stay together; default: none"
    )
    rate: float | None = Field(default=None, gt=0, le=1, description="sampling: share of keys that stay; default: none")

    @model_validator(mode="after")
    def _fits_its_operation(self) -> Self:
        takes = PARAMETERS[self.op]
        allowed = (*takes.needed, *takes.optional)
        for name in _ALL_PARAMETERS:
            if getattr(self, name) is not None and name not in allowed:
                words = [to_camel(each) for each in allowed]
                raise located(
                    f"{self.op} takes {' and '.join(words) or 'no parameters'}{did_you_mean(to_camel(name), words)}", to_camel(name)
                )
            if getattr(self, name) is None and name in takes.needed:
                raise located(f"required by {self.op}", to_camel(name))
        if not takes.takes(len(self.inputs)):
            raise located(f"{self.op} takes {takes.inputs_in_words}; found {len(self.inputs)}", "inputs")
        if (self.output is None) != (self.op == "sampling"):
            raise located("sampling makes no feature" if self.op == "sampling" else f"required by {self.op}", "output")
        return self

    @model_validator(mode="after")
    def _has_values_in_order(self) -> Self:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise located(f"low {self.low:g} is above high {self.high:g}", "low")
        if (self.mean is None) != (self.variance is None):
            given, missing = ("mean", "variance") if self.variance is None else ("variance", "mean")
            raise located(f"{given} is given without {missing}: give both, or neither to take those of the training rows", missing)
        if any(low >= high for low, high in pairwise(self.borders or ())):
            raise located("borders must ascend", "borders")
        if self.time_zone is not None:
            try:
                ZoneInfo(self.time_zone)
            except (KeyError, ValueError, OSError):
                raise located(f"{self.time_zone!r} is not an IANA time zone; write it like Europe/Vienna", "timeZone") from None
        return self

    @property
    def is_measured(self) -> bool:
        """Whether its mean and variance are those of the training rows."""
        return self.op == "normalize" and self.mean is None

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.key,) if self.key is not None else tuple(self.inputs)

    def as_step(self) -> dict[str, Any]:
        """The step in the form of `data.tables.Pipeline.of`."""
        return self.model_dump(exclude_none=True, exclude={"inputs"} if self.op == "sampling" else None)


_ALL_PARAMETERS = tuple(name for name in Transform.model_fields if name not in ("op", "inputs", "output"))


def roots(steps: Iterable[tuple[Sequence[str], str]], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """The source columns of each name. `steps`: (inputs, output). A column that no step makes is its own source."""
    made: dict[str, frozenset[str]] = {}
    for inputs, output in steps:
        made[output] = frozenset().union(*(made.get(name, {name}) for name in inputs))
    return {name: made.get(name, frozenset({name})) for name in names}


def leak(steps: Iterable[tuple[Sequence[str], str]], features: Sequence[str], labels: Sequence[str]) -> str | None:
    """A sentence about the first feature that is made from the same column as a label; None without one."""
    found = roots(steps, [*features, *labels])
    for label in labels:
        for feature in features:
            for column in sorted(found[feature] & found[label]):
                of_label = f"label {label}" if column == label else f"{column}, from which label {label} is made"
                return f"feature {feature} is made from {of_label}: the ranker would read what it has to predict"
    return None


def check_steps(steps: Sequence[Transform], features: Sequence[str], labels: Sequence[str], slices: Sequence[str]) -> None:
    """Raises if a step hides a column that was read before, makes an unused output, or samples by a label."""
    made_from = roots([(step.inputs, step.output) for step in steps if step.output is not None], labels)
    makers: dict[str, int] = {}
    first_reads: dict[str, int] = {}
    unread: dict[str, int] = {}
    for number, step in enumerate(steps):
        for name in step.reads:
            first_reads.setdefault(name, number)
            unread.pop(name, None)
        if step.output is None:
            _check_key(steps[:number], step, frozenset().union(*made_from.values()), number)
            continue
        if step.output not in step.inputs:
            if step.output in makers:
                raise _wrong(number, f"transforms[{makers[step.output]}] makes {step.output} too: give one of them another output")
            if step.output in first_reads:
                earlier = f"transforms[{first_reads[step.output]}] reads {step.output} before this step makes it"
                raise _wrong(number, f"{earlier}: put this step first, or give it another output")
        makers[step.output] = unread[step.output] = number
    named = [*features, *labels, *slices]
    for name, number in unread.items():
        if name not in named:
            near = did_you_mean(name, [each for each in named if each not in makers])
            raise _wrong(number, f"nothing reads {name}: name it among features, labels or slices, or leave the step out{near}")


def _check_key(before: Sequence[Transform], step: Transform, of_labels: frozenset[str], number: int) -> None:
    """`of_labels`: columns from which labels are made."""
    assert step.key is not None
    measured = set[str]()
    for each in before:
        if each.output is not None:
            (measured.add if each.is_measured or measured & {*each.inputs} else measured.discard)(each.output)
    if step.key in measured:
        reason = f"{step.key} is normalized by the rows that sampling leaves: sample by another key, or give mean and variance"
        raise located(reason, "transforms", number, "key")
    found = roots([(each.inputs, each.output) for each in before if each.output is not None], [step.key])[step.key]
    if found & of_labels:
        reason = f"sampling by {step.key} keeps all rows of a label or none: set negativeRate, which keeps probabilities right"
        raise located(reason, "transforms", number, "key")


def _wrong(number: int, reason: str) -> Exception:
    return located(reason, "transforms", number, "output")
