"""A pipeline of transformations, declared as data, checked against a schema before the first batch, and run batch by batch.

Pipeline.of([{"op": "clamp", "inputs": ["age"], "output": "age", "low": 0, "high": 120},
             {"op": "sampling", "key": "request", "rate": 0.1}])
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tuneyard.api import BadInput
from tuneyard.api.loading_reasons import explain
from tuneyard.data.tables.transforms.dense_steps import BoxCox, Bucketize, Clamp, GetLocalHour, Log1p, Logit, Normalize, OneHot
from tuneyard.data.tables.transforms.hashing import as_ids, mix
from tuneyard.data.tables.transforms.id_steps import (
    Cartesian,
    ComputeScore,
    Enumerate,
    FirstX,
    IdListTransform,
    MapId,
    NGram,
    PositiveModulus,
    SigridHash,
)
from tuneyard.data.tables.transforms.list_steps import SortByScore, Union
from tuneyard.data.tables.transforms.steps import Step, is_id, need, numbers, settled


class Sampling(BaseModel):
    """Keeps a share `rate` of the rows by the hash of `key`. The same keys are kept in every run, file and batch.

    Rows with a null key are dropped. If `key` identifies a request, all rows of a request are kept or dropped together.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: Literal["sampling"] = "sampling"
    key: str
    rate: float = Field(ge=0, le=1)
    seed: int = Field(default=0, ge=0)

    def mask(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """True for rows that are kept."""
        if pa.types.is_null(keys.type):
            return np.zeros(len(keys), np.bool_)
        ids = as_ids(keys)
        kept: npt.NDArray[np.bool_] = (mix(numbers(ids), self.seed) >> np.uint64(11)) < np.uint64(round(self.rate * (1 << 53)))
        valid: npt.NDArray[np.bool_] = ids.is_valid().to_numpy(zero_copy_only=False)
        return kept & valid


_Column = (
    BoxCox
    | Bucketize
    | Cartesian
    | Clamp
    | ComputeScore
    | Enumerate
    | FirstX
    | GetLocalHour
    | IdListTransform
    | Log1p
    | Logit
    | MapId
    | NGram
    | Normalize
    | OneHot
    | PositiveModulus
    | SigridHash
    | SortByScore
    | Union
)
AnyStep = Annotated[_Column | Sampling, Field(discriminator="op")]
_STEPS: TypeAdapter[AnyStep] = TypeAdapter(AnyStep)
_KINDS: dict[str, type[BaseModel]] = {kind.model_fields["op"].default: kind for kind in (*_Column.__args__, Sampling)}
OPERATIONS: tuple[str, ...] = tuple(sorted(_KINDS))


class Pipeline(BaseModel):
    """Steps in their order. A step sees the outputs of the steps before it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: tuple[AnyStep, ...] = ()

    @classmethod
    def of(cls, steps: Iterable[Mapping[str, Any]]) -> Pipeline:
        """From plain data, such as parsed YAML. Raises BadInput for an unknown operation and for missing, wrong or unknown parameters."""
        return cls(steps=tuple(_step(number, values) for number, values in enumerate(steps, start=1)))

    @property
    def features(self) -> tuple[str, ...]:
        """The features that a reader's projection must have for this pipeline."""
        made: set[str] = set()
        wanted: dict[str, None] = {}
        for step in self.steps:
            wanted |= dict.fromkeys(name for name in _inputs(step) if name not in made)
            if isinstance(step, Step):
                made.add(step.output)
        return tuple(wanted)

    def reads(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """The columns of a table that are needed for `wanted`: inputs of steps, and features of `wanted` that no step makes."""
        return self._traced(wanted)[1]

    def making(self, wanted: Iterable[str]) -> Pipeline:
        """The steps that are needed for `wanted`, including all sampling."""
        return Pipeline(steps=self._traced(wanted)[0])

    @property
    def made(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """Inputs and output of each step that makes a feature."""
        return tuple((step.inputs, step.output) for step in self.steps if isinstance(step, Step))

    @property
    def without_sampling(self) -> Pipeline:
        return Pipeline(steps=tuple(step for step in self.steps if not isinstance(step, Sampling)))

    @property
    def samples(self) -> bool:
        """Whether rows are dropped."""
        return any(isinstance(step, Sampling) for step in self.steps)

    @property
    def measured(self) -> tuple[int, ...]:
        """Places of the steps that still need a mean and a variance, see `fitted`."""
        return tuple(at for at, step in enumerate(self.steps) if isinstance(step, Normalize) and step.mean is None)

    @property
    def scales(self) -> bool:
        """Whether a step normalizes."""
        return any(isinstance(step, Normalize) for step in self.steps)

    def normalize_at(self, at: int) -> Normalize:
        """The step at this place, which normalizes."""
        step = self.steps[at]
        assert isinstance(step, Normalize)
        return step

    @property
    def unscaled(self) -> Pipeline:
        """The same steps without the effect of any `normalize`: rows are equal in it whatever the statistics are."""
        return Pipeline(steps=tuple(step.with_statistics(0.0, 1.0) if isinstance(step, Normalize) else step for step in self.steps))

    def _traced(self, wanted: Iterable[str]) -> tuple[tuple[AnyStep, ...], tuple[str, ...]]:
        """The steps and columns that are needed for `wanted`, found from the last step backwards."""
        needed, steps = dict.fromkeys(wanted), list[AnyStep]()
        for step in reversed(self.steps):
            if isinstance(step, Step):
                if step.output not in needed:
                    continue
                del needed[step.output]
            steps.append(step)
            needed |= dict.fromkeys(_inputs(step))
        return tuple(reversed(steps)), tuple(needed)

    def check(self, schema: pa.Schema) -> pa.Schema:
        """The schema of output batches. Raises BadInput for a missing input, and for an input of another type."""
        kinds = {field.name: field.type for field in schema}
        for number, step in enumerate(self.steps, start=1):
            inputs = _inputs(step)
            where = f"step {number} ({step.op})"
            for name in inputs:
                if name not in kinds:
                    near = difflib.get_close_matches(name, kinds, n=2, cutoff=0.6)
                    raise BadInput(f"{where}: there is no feature {name!r}", _advice(near))
            try:
                if isinstance(step, Sampling):
                    need(kinds[step.key], "whole numbers or texts", is_id(kinds[step.key]) or pa.types.is_null(kinds[step.key]))
                else:
                    need_count(step, inputs)
                    kinds[step.output] = _made_type(step, [settled(kinds[name]) for name in inputs])
            except ValueError as error:
                raise BadInput(f"{where} of {', '.join(inputs)}: {error}", _other_input(inputs, kinds)) from error
        return pa.schema(list(kinds.items()))

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Transform one batch. Raises BadInput as `check` does."""
        schema = self.check(batch.schema)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for number, step in enumerate(self.steps, start=1):
            if isinstance(step, Sampling):
                mask = pa.array(step.mask(columns[step.key]))
                columns = {name: column.filter(mask) for name, column in columns.items()}
                continue
            try:
                columns[step.output] = _made(step, [columns[name] for name in step.inputs])
            except BadInput as error:
                raise BadInput(f"step {number} ({step.op}) of {', '.join(step.inputs)}: {error.cause}", error.next_step) from error
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Transform a stream of batches."""
        return (self.run(batch) for batch in batches)


def _inputs(step: AnyStep) -> tuple[str, ...]:
    return (step.key,) if isinstance(step, Sampling) else step.inputs


def _made_type(step: Step, kinds: Sequence[pa.DataType]) -> pa.DataType:
    """The type of a step's output; null where an input has no type, because all its values are null."""
    typed = [kind for kind in kinds if not pa.types.is_null(kind)]
    return step.output_type(typed) if typed and (step.skips_nulls or len(typed) == len(kinds)) else pa.null()


def _made(step: Step, arrays: Sequence[pa.Array]) -> pa.Array:
    typed = [array for array in arrays if not pa.types.is_null(array.type)]
    if not typed or (len(typed) < len(arrays) and not step.skips_nulls):
        return pa.nulls(len(arrays[0]))
    return step.run([array.cast(settled(array.type)) if array.type != settled(array.type) else array for array in typed])


def need_count(step: Step, inputs: Sequence[str]) -> None:
    """Raise ValueError where a step takes another number of inputs."""
    most = step.most or step.takes
    if not step.takes <= len(inputs) <= most:
        takes = f"{step.takes} to {most}" if most > step.takes else step.takes
        raise ValueError(f"it takes {takes} input{'s' if most > 1 else ''}, and {len(inputs)} are named")


def _step(number: int, values: Mapping[str, Any]) -> Any:
    operation = values.get("op")
    if operation not in OPERATIONS:
        near = difflib.get_close_matches(str(operation), OPERATIONS, n=2, cutoff=0.5) if operation else []
        raise BadInput(
            f"step {number}: there is no operation {operation!r}", _advice(near) if near else f"use one of {', '.join(OPERATIONS)}"
        )
    try:
        return _STEPS.validate_python(values)
    except ValidationError as error:
        found = explain(error, _KINDS[operation], dict(values))
        problems = "; ".join(": ".join(filter(None, (".".join(map(str, path)), reason))) for path, reason in found)
        raise BadInput(f"step {number} ({operation}): {problems}", "docs/tables.md lists the parameters of each operation") from error


def _advice(near: Sequence[str]) -> str:
    return f"did you mean {' or '.join(near)}?" if near else "add it to the projection"


def _other_input(inputs: Sequence[str], kinds: Mapping[str, pa.DataType]) -> str:
    if any(name in kinds and pa.types.is_decimal(kinds[name]) for name in inputs):
        return "cast decimals to double where the table is written, or give it another feature"
    return "give it another feature, or another operation"
