"""The table at the end of a check: what was measured beside what was predicted, and a sentence for each miss."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from benchmarks.gpu.cases import CASES, Case

Row = Mapping[str, Any]
_CELL = 120
"""Characters of an error in a table."""
_SAME_LOSS = 0.02
"""Runs of the same model over the same rows differ by less, whatever the layout."""


def report(rows: list[Row], *, judged: bool = True) -> str:
    """The whole report in Markdown. `judged`: whether misses are looked for, which tiny shapes on a CPU are not."""
    cases = {case.name: case for case in CASES}
    trained = [row for row in rows if row.get("case") in cases]
    lines = [*_head(rows), "", *_table(trained)]
    if judged:
        lines += ["", *_misses(trained, cases)]
    return "\n".join([*lines, "", *_attention(rows), "", *_others(rows)])


def report_trials(rows: list[Row]) -> str:
    """The changes that were tried, each beside what was expected of it. A gain below 2 % says nothing."""
    lines = ["| change | expected | tokens/s | with it | gain | allocated, GB | with it |", "|---|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        if "trial" not in row:
            continue
        if "after" not in row:
            lines.append(f"| {row['trial']} | {row['expected']} | {row['error'][:_CELL]} | | | | |")
            continue
        before, after = row["before"], row["after"]
        gain = after["tokens_per_s"] / before["tokens_per_s"] - 1
        figures = f"{before['tokens_per_s']:,.0f} | {after['tokens_per_s']:,.0f} | {gain:+.1%}"
        lines.append(f"| {row['trial']} | {row['expected']} | {figures} | {before['allocated_gb']:.1f} | {after['allocated_gb']:.1f} |")
    return "\n".join([*lines, "", *_others(rows)])


def misses_of(case: Case, row: Row) -> list[str]:
    """What of the case is out of its tolerance."""
    found, predicted = [], row["predicted"]
    speed = row["tokens_per_s"] / predicted["tokens_per_s"]
    if not case.speed[0] <= speed <= case.speed[1]:
        why = f": {case.slow}" if speed < case.speed[0] and case.slow else ""
        found.append(f"speed is {speed:.2f} of the predicted one ({case.speed[0]:.2f} to {case.speed[1]:.2f}){why}")
    memory = row["allocated_gb"] / predicted["allocated_gb"]
    if not case.memory[0] <= memory <= case.memory[1]:
        found.append(f"memory is {memory:.2f} of the predicted one ({case.memory[0]:.2f} to {case.memory[1]:.2f})")
    return found


def _head(rows: list[Row]) -> Iterator[str]:
    row = next((row for row in rows if "card" in row), None)
    if row is None:
        yield "no facts: see facts.log"
        return
    packages = ", ".join(f"{name} {found or 'missing'}" for name, found in row["packages"].items())
    yield f"{row['card']} ({row['sku']}), {datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    yield f"driver, power limit, clock: {row['driver'] or 'unknown'}; {row['cores']} cores; Python {row['python']}; {packages}"


def _table(rows: list[Row]) -> Iterator[str]:
    yield "| case | tokens/s | predicted | MFU | predicted | allocated, GB | predicted | reserved, GB | host, GB | predicted | losses |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
    for row in rows:
        if "tokens_per_s" not in row:
            yield f"| {row['case']} | {(row.get('error') or row['skipped'])[:_CELL]} |" + " |" * 9
            continue
        predicted = row["predicted"]
        figures = (
            f"{row['tokens_per_s']:,.0f}",
            f"{predicted['tokens_per_s']:,.0f}",
            f"{row['mfu']:.1%}",
            f"{predicted['mfu']:.1%}",
            f"{row['allocated_gb']:.1f}",
            f"{predicted['allocated_gb']:.1f}",
            f"{row['reserved_gb']:.1f}",
            f"{row['host_gb']:.1f}",
            f"{predicted['host_gb']:.1f}",
            f"{row['losses'][0]:.3f}, {row['losses'][-1]:.3f}",
        )
        yield f"| {row['case']} | {' | '.join(figures)} |"


def _misses(rows: list[Row], cases: Mapping[str, Case]) -> Iterator[str]:
    found = [f"{row['case']}: {miss}" for row in rows if "tokens_per_s" in row for miss in misses_of(cases[row["case"]], row)]
    found += [f"{row['case']}: {row.get('error') or row['skipped']}" for row in rows if "tokens_per_s" not in row]
    found += [f"{name}: no result" for name in cases if name not in {row["case"] for row in rows}]
    found += _other_losses(rows, cases)
    yield f"{len(found)} misses:" if found else "Nothing misses its tolerance."
    yield from (f"- {each}" for each in found)


def _other_losses(rows: Iterable[Row], cases: Mapping[str, Case]) -> Iterator[str]:
    """Runs that should have the losses of another one and have not."""
    first: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        case = cases[row["case"]]
        if "losses" not in row:
            continue
        batch = case.plan_fields["micro_batch"] * case.plan_fields["grad_accum"]
        other = first.setdefault((case.shape, case.method, case.samples, batch), row)
        pairs = zip(row["losses"], other["losses"], strict=False)
        if any(not abs(ours - theirs) <= _SAME_LOSS * theirs for ours, theirs in pairs):
            yield f"{row['case']}: its losses are not those of {other['case']}"


def _attention(rows: Iterable[Row]) -> Iterator[str]:
    yield "| attention of an 8B layer, forward and backward | ms | TFLOP/s of what is needed |"
    yield "|---|---:|---:|"
    for row in rows:
        if "attention" in row:
            figures = f"{row['ms']:.2f} | {row['tflops']:.0f}" if "ms" in row else f"{row['error'][:_CELL]} |"
            yield f"| {row['attention']} | {figures} |"


def _others(rows: list[Row]) -> Iterator[str]:
    outcomes = [row["outcome"] for row in rows if "test" in row]
    if outcomes:
        yield "- tests/gpu: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(Counter(outcomes).items()))
        yield from (f"  - {row['outcome']}: {row['test']}" for row in rows if row.get("outcome") in ("failed", "error"))
    for row in rows:
        if "op" in row:
            yield f"- compile {row['op']}: " + (row.get("error") or f"{row['seconds']:.0f} s")
        elif "peak" in row:
            yield f"- peak of {row['peak']}: {row['measured']:,.0f} measured, {row['listed']:,.0f} in the catalog"
        elif "largest" in row:
            yield f"- {row['of']}: micro-batch {row['largest']} ran, {row['planned']} was planned. {row['why'][:_CELL]}"
        elif "ended" in row:
            yield f"- section {row['section']}: {row['ended']}, {row['seconds']:.0f} s"
