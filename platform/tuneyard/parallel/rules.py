"""A user's own rules for the cut of a model: which modules are cut, and along which side. The proof of a plan holds for them as for any
other plan; where a rule breaks a pair, its module is cut alone, and its result gathered.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from tuneyard.api import BadInput
from tuneyard.parallel.modules import pattern

Cut = Literal["columns", "rows", "none"]
STYLES: Mapping[Cut, frozenset[str]] = {
    "columns": frozenset({"colwise", "packed_colwise", "colwise_gather_output", "embedding_colwise"}),
    "rows": frozenset({"rowwise", "rowwise_split_input", "embedding_rowwise"}),
    "none": frozenset({"replicated", "replicated_with_grad_allreduce", "mla_kv_a_proj"}),
}
"""The styles that follow a rule."""


@dataclass(frozen=True)
class CutRule:
    """Modules whose full name the regular expression finds somewhere (`re.search`), and their cut. columns: by outputs; rows: by inputs,
    or by the entries of an embedding; none: whole on each rank.
    """

    match: str
    cut: Cut

    def __str__(self) -> str:
        return f"{{match: {self.match}, cut: {self.cut}}}"


def wishes_of(model: nn.Module, rules: Sequence[CutRule], prefix: str = "") -> dict[str, CutRule]:
    """Pattern of a module with weights -> the first rule that finds it. `prefix`: what the planned model has before the names of `model`.

    Raises BadInput for a rule that finds no module, and for rules that differ between modules that a plan gives one style (`layers.*.up`).
    """
    weighted = [name for name, module in model.named_modules() if next(module.parameters(recurse=False), None) is not None]
    found: dict[str, CutRule | None] = {}
    used: set[CutRule] = set()
    for name in weighted if rules else ():
        rule = next((rule for rule in rules if re.search(rule.match, name)), None)
        used |= {rule} if rule is not None else set()
        key = pattern(f"{prefix}{name}")
        if key in found and found[key] != rule:
            raise BadInput(
                f"shardingRules treat {name} ({rule or 'no rule'}) and other modules of {key} ({found[key] or 'no rule'}) differently",
                "match all layers alike: a plan has one style for the modules of all layers",
            )
        found[key] = rule
    for rule in rules:
        if rule not in used and not any(re.search(rule.match, name) for name in weighted):
            near = difflib.get_close_matches(rule.match, weighted, n=1, cutoff=0.3) or weighted[:1]
            raise BadInput(f"no module with weights matches the sharding rule {rule}", f"match a name of the model, such as {near[0]}")
    return {name: rule for name, rule in found.items() if rule is not None}


def broken(wishes: Mapping[str, CutRule], styles: Mapping[str, str]) -> dict[str, CutRule]:
    """Rules that a plan does not follow, by pattern."""
    return {name: rule for name, rule in wishes.items() if _style(name, styles) not in STYLES[rule.cut]}


def _style(name: str, styles: Mapping[str, str]) -> str:
    """Without the sizes of blocks: `packed_colwise:3`."""
    return styles.get(name, "replicated").partition(":")[0]


def refuse_broken(wishes: Mapping[str, CutRule], styles: Mapping[str, str], reasons: Mapping[str, str]) -> None:
    """Raises BadInput for a rule that the plan could not follow, with the plan's reason."""
    for name, rule in broken(wishes, styles).items():
        why = reasons.get(name, "only linears, embeddings and experts are cut")
        raise BadInput(
            f"the sharding rule {rule} cannot hold for {name}: the proof makes it {_style(name, styles)}; {why}",
            "take the rule out, or write cut: none",
        )
