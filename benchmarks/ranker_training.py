"""Models of ranker_ensembles.py: made with equal numbers of parameters, trained by one rule, and judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from benchmarks.ranker_data import Batch, Data
from benchmarks.ranker_peers import DLRM, DCNv2
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from tuneyard.api.rank import EnsembleName
from tuneyard.ranking import EnsembleLayer, RankerConfig, RankFigures, RankMetrics
from tuneyard.ranking.config import ENSEMBLES, INTERACTIONS, Interaction

PARAMETERS, WITHIN = 80_000, 0.10
"""Of the dense part of each model, and how far from that it may be."""
RATES = (0.001, 0.003, 0.01)
"""Learning rates of the dense part, one of which is chosen for each family."""
BY = " by "
"""Between the modules of a family and its ensemble."""
_BETAS = (0.9, 0.99)
_WARM_UP = 0.05
_HEAD = 128
_HEADS = sorted(range(32, 265, 8), key=lambda size: abs(size - _HEAD))
_MOST = 400
PEERS = {
    "DLRM": lambda config, hidden: DLRM(config, hidden),
    "DCN-v2 parallel": lambda config, hidden: DCNv2(config, hidden, crosses=2, stacked=False),
    "DCN-v2 stacked": lambda config, hidden: DCNv2(config, hidden, crosses=2, stacked=True),
}


@dataclass(frozen=True)
class Entry:
    """A model of the comparison. `family`: a peer's name, or modules joined by +, with ` by ` and an ensemble that is no concatenation
    behind them; `layers`: equal ensembles of these modules."""

    family: str
    layers: int

    @property
    def modules(self) -> tuple[Interaction, ...]:
        """Empty for a peer."""
        return () if self.family in PEERS else tuple(_interaction(name) for name in self.family.partition(BY)[0].split("+"))

    @property
    def ensemble(self) -> EnsembleName:
        return next((name for name in ENSEMBLES if name == self.family.partition(BY)[2]), "concatenation")


def equalised(entry: Entry, config: RankerConfig) -> Callable[[], nn.Module]:
    """What builds the entry's model with PARAMETERS in its dense part, to WITHIN of that: by the outputs of its modules and, where these
    are too coarse a measure, by the width of its head; a peer's by the widths of its networks. Raises ValueError where neither does."""
    if entry.family in PEERS:
        peer = PEERS[entry.family]
        size = _largest(lambda hidden: peer(config, hidden))
        if size and _close(count := _counted(lambda: peer(config, size))):
            return lambda: peer(config, size)
        raise ValueError(f"no width gives {entry.family} {PARAMETERS} parameters: {count if size else 'none is small enough'}")
    if not _small_enough(lambda: _ranker(entry, config, 1, min(_HEADS))):
        raise ValueError(f"{entry.layers} layers of {entry.family} have more than {PARAMETERS} parameters")
    for head in _HEADS:
        small = _largest(lambda outputs, head=head: _ranker(entry, config, outputs, head))
        for outputs in (small, small + 1):
            if outputs and _close(_counted(lambda: _ranker(entry, config, outputs, head))):  # noqa: B023 - called at once
                return lambda: _ranker(entry, config, outputs, head)
    raise ValueError(f"no outputs and no head give {entry.layers} layers of {entry.family} {PARAMETERS} parameters")


def dense_parameters(model: nn.Module) -> int:
    """Parameters outside of the feature layer, which all models share."""
    return sum(weight.numel() for name, weight in model.named_parameters() if not name.startswith("features."))


def trained(build: Callable[[], nn.Module], data: Data, *, rate: float, seed: int) -> nn.Module:
    """A model from `seed`, which draws its weights and the order of batches: Adam, the rates of dense part and feature layer warmed up over
    5 % of the steps and lowered to 0 linearly."""
    torch.manual_seed(seed)
    model = build()
    tables = [weight for name, weight in model.named_parameters() if name.startswith("features.")]
    dense = [weight for name, weight in model.named_parameters() if not name.startswith("features.")]
    optimizer = torch.optim.Adam([{"params": tables, "lr": data.table_rate}, {"params": dense, "lr": rate}], betas=_BETAS, fused=True)
    steps = len(data.train) * data.epochs
    warm = max(1, int(_WARM_UP * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / warm, 1 - step / steps))
    order = torch.Generator().manual_seed(seed)
    for _ in range(data.epochs):
        for at in torch.randperm(len(data.train), generator=order).tolist():
            batch = data.train[at]
            optimizer.zero_grad()
            binary_cross_entropy_with_logits(model(batch), batch["labels"]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


@torch.no_grad()  # type: ignore[untyped-decorator]
def judged(model: nn.Module, batches: Sequence[Batch]) -> RankFigures:
    metrics = RankMetrics()
    for batch in batches:
        metrics.update(model(batch)[:, 0].double().numpy(), batch["labels"][:, 0].double().numpy())
    return metrics.figures()


def _interaction(name: str) -> Interaction:
    return next(known for known in INTERACTIONS if known == name)


def _ranker(entry: Entry, config: RankerConfig, outputs: int, head: int) -> nn.Module:
    layers = (EnsembleLayer(entry.modules, outputs, entry.ensemble),) * entry.layers
    return replace(config, layers=layers, hidden=(head,)).build()


def _counted(build: Callable[[], nn.Module]) -> int:
    with torch.device("meta"):
        return dense_parameters(build())


def _close(count: int) -> bool:
    return abs(count - PARAMETERS) <= WITHIN * PARAMETERS


def _small_enough(build: Callable[[], nn.Module]) -> bool:
    return _counted(build) <= (1 + WITHIN) * PARAMETERS


def _largest(build: Callable[[int], nn.Module]) -> int:
    """The largest size with at most PARAMETERS; 0 where 1 has more."""
    low, high = 0, _MOST
    while low < high:
        middle = (low + high + 1) // 2
        if _counted(lambda: build(middle)) <= PARAMETERS:  # noqa: B023 - called at once
            low = middle
        else:
            high = middle - 1
    return low
