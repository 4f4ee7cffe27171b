"""What is said of a run before trees: seconds of a step, gigabytes, odds of failing, from the planner and the calibrated roofline."""

from __future__ import annotations

import numpy as np

from tuneyard.tuning.features import Described
from tuneyard.tuning.roofline import Roofline

PLANNER_ROWS = 300.0
"""Rows of history at which it counts as much as the planner's estimate."""
OWN_FACTORS = 40
"""Rows of one software from which it has factors of its own."""


def calibrated(timed: Described, measured: np.ndarray) -> dict[str, Roofline]:
    """Factors for all rows, and of their own for software that has enough rows."""
    overall = Roofline.prior().fitted(timed.terms, measured)
    software = timed.known["framework"].to_numpy(dtype=str)
    names = [str(name) for name in np.unique(software) if (software == name).sum() >= OWN_FACTORS]
    own = {name: overall.fitted(timed.terms[software == name], measured[software == name]) for name in names}
    return own | {"": overall}


def log_seconds(found: Described, rooflines: dict[str, Roofline], rows: int) -> np.ndarray:
    """log seconds of a step before trees: the planner's with no rows of history, the calibrated roofline's with many."""
    fitted = np.log(rooflines[""].seconds(found.terms)) if len(found.terms) else np.zeros(0)
    software = found.known["framework"].to_numpy(dtype=str)
    for name in set(software) & set(rooflines):
        here = software == name
        fitted[here] = np.log(rooflines[name].seconds(found.terms[here]))
    planned = np.where(np.isfinite(found.planner_step_s), np.log(found.planner_step_s), fitted)
    weight = rows / (rows + PLANNER_ROWS)
    return np.asarray(weight * fitted + (1 - weight) * planned)


def log_memory(found: Described) -> np.ndarray:
    """log GB: the planner's estimate, or 16 bytes per parameter of a rank where it has none."""
    known = found.known
    plain = 16 * known.parameters / (known.tp * known.pp) / np.where(known.zero == 3, known.dp, 1) / 1e9
    return np.asarray(np.log(np.where(np.isfinite(found.planner_memory_gb), found.planner_memory_gb, plain)))


def failure_logit(found: Described) -> np.ndarray:
    """Logit of running out of memory: even where the estimate is the device's memory, an order of magnitude per 30 % of it."""
    share = np.exp(log_memory(found)) / found.memory_gb
    return np.asarray(np.clip((share - 1) * 8, -4, 4))


def sigmoid(values: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-values)))
