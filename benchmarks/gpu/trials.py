"""Changes that are not the default, tried when the check has left time: the same case before and after each, in one process.

The expected gains were written before the first run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from benchmarks.gpu.cases import CASES, REHEARSAL, Case
from benchmarks.gpu.predictions import predicted
from benchmarks.gpu.results import first_line, tell, told
from benchmarks.gpu.training import is_clean, measure
from torch.nn.attention import SDPBackend, sdpa_kernel

from tuneyard.catalog import local_sku
from tuneyard.training import arguments

Around = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """`layout` changes the case, and `around` what it runs in; `layout_before` and `around_before` do so for the case before it."""

    name: str
    case: str
    expected: str
    layout: dict[str, Any] | None = None
    layout_before: dict[str, Any] | None = None
    around: Around = nullcontext
    around_before: Around = nullcontext


def run_trial(name: str) -> None:
    trial = next(trial for trial in TRIALS if trial.name == name)
    case = next(case for case in CASES if case.name == trial.case)
    try:
        before = _before(trial, case)
        is_clean()
        with trial.around():
            after = measure(replace(case, layout={**case.layout, **(trial.layout or {})}), refuse=False)
        tell(name, trial=name, expected=trial.expected, before=before, after=after)
    except Exception as error:  # noqa: BLE001 - each is a row of the report
        tell(name, trial=name, expected=trial.expected, error=first_line(error))


def find_largest(name: str) -> None:
    """Double the micro-batch until memory runs out, beside the largest that the planner lets through."""
    case = next(case for case in CASES if case.name == _DOUBLED[name])
    rows, largest, planned, why = case.plan_fields["micro_batch"], 0, 0, ""
    while rows <= (8 if REHEARSAL else 512):
        larger = replace(case, layout={**case.layout, "micro_batch": rows, "grad_accum": 1}, steps=3)
        planned = rows if predicted(larger, local_sku()).fits else planned
        try:
            found = measure(larger, refuse=False)
        except Exception as error:  # noqa: BLE001 - most likely out of memory, which ends the search
            why = first_line(error)
            break
        tell(name, micro=rows, **found)
        largest = rows
        rows *= 2
        is_clean()
    tell(name, largest=largest, planned=planned, of=case.name, why=why)


@contextmanager
def _cudnn_first() -> Iterator[None]:
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(order, set_priority=True):
        yield


def _without_fused() -> AbstractContextManager[Any]:
    return mock.patch.object(arguments, "fused_adamw", return_value=False)


def _before(trial: Trial, case: Case) -> dict[str, Any]:
    """What the case shows without the change: measured here, or by an earlier trial."""
    if trial.layout_before is not None or trial.around_before is not nullcontext:
        with trial.around_before():
            return measure(replace(case, layout={**case.layout, **(trial.layout_before or {})}))
    known = next((row for row in told() if row.get("before_of") == case.name), None)
    if known is None:
        known = {"before_of": case.name, **measure(case)}
        tell(trial.name, **known)
    return known


_LORA, _FULL = "8B LoRA, Liger, micro 4", "1B full, Liger, micro 8"
TRIALS = (
    Trial(
        name="variable-length",
        case="8B LoRA, Liger, 8 samples a row",
        expected="+8 to 15 %: attention 3 to 5 times as fast as with a mask",
        layout={"attention": "flash"},
        layout_before={"attention": "sdpa"},
    ),
    Trial(
        name="compiled-layers",
        case=_LORA,
        expected="+15 to 25 %, after about 40 s of compiling",
        layout={"compiled": True},
    ),
    Trial(name="cudnn-first", case=_LORA, expected="+3 to 4 % at rows of 2,048", around=_cudnn_first),
    Trial(
        name="fused-adamw",
        case=_FULL,
        expected="optimizer 30 ms to 12 ms a step; 6 GB less memory",
        around_before=_without_fused,
    ),
    Trial(name="bf16-weights", case=_FULL, expected="+10 %: ZeRO 1 on one rank has bf16 weights and fp32 masters", layout={"zero": 1}),
)
_DOUBLED = {"largest-lora": _LORA, "largest-full": _FULL}
