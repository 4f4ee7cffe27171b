"""Losses on preference pairs. A new loss is a new entry of `LOSSES`.

A log-ratio is log p(answer | prompt) of the model minus that of the reference, summed over the answer's tokens with loss. In the formulas,
c is the log-ratio of the chosen answer, r that of the rejected one, n_c and n_r their numbers of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.nn.functional import logsigmoid


@dataclass(frozen=True)
class Ratios:
    """Log-ratios of pairs, and the numbers of tokens that they are sums over."""

    chosen: torch.Tensor
    rejected: torch.Tensor
    chosen_tokens: torch.Tensor
    rejected_tokens: torch.Tensor


def _sigmoid(ratios: Ratios, beta: float) -> torch.Tensor:
    """-log sigmoid(beta (c - r)): Rafailov et al. 2023, equation 7."""
    return -logsigmoid(beta * (ratios.chosen - ratios.rejected))


def _hinge(ratios: Ratios, beta: float) -> torch.Tensor:
    """max(0, 1 - beta (c - r)): Zhao et al. 2023 (SLiC) with the margin of DPO, as in Liu et al. 2023 (RSO), section 3.2."""
    return torch.relu(1 - beta * (ratios.chosen - ratios.rejected))


def _ipo(ratios: Ratios, beta: float) -> torch.Tensor:
    """(c / n_c - r / n_r - 1 / (2 beta))^2: Azar et al. 2023, equation 17, with means over tokens, which its authors use too."""
    return (ratios.chosen / ratios.chosen_tokens - ratios.rejected / ratios.rejected_tokens - 1 / (2 * beta)) ** 2


LOSSES: Mapping[str, Callable[[Ratios, float], torch.Tensor]] = {"sigmoid": _sigmoid, "hinge": _hinge, "ipo": _ipo}
"""By the name in a JobSpec: (log-ratios of pairs, beta) -> the loss of each pair."""
