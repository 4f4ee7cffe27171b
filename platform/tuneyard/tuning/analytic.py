"""Analytic estimates before trees: seconds of a step, gigabytes, and odds of failing, from the planner and the calibrated roofline."""

from __future__ import annotations

import numpy as np

from tuneyard.tuning.features import Described
from tuneyard.tuning.roofline import Roofline

PLANNER_ROWS = 300.0
"""Rows of history that weigh as much as the planner's estimate."""
OWN_FACTORS = 40
"""Rows of one software that are enough for its own factors."""


def calibrated(timed: Described, measured: np.ndarray) -> dict[str, Roofline]:
    """Factors for all rows (key ""), and separate ones for software with enough rows."""
    overall = Roofline.prior().fitted(timed.terms, measured)
    software = timed.known["framework"].to_numpy(dtype=str)
    names = [str(name) for name in np.unique(software) if (software == name).sum() >= OWN_FACTORS]
    own = {name: overall.fitted(timed.terms[software == name], measured[software == name]) for name in names}
    return own | {"": overall}


def log_seconds(found: Described, rooflines: dict[str, Roofline], rows: int) -> np.ndarray:
    """log seconds of a step: the planner's without history, the calibrated roofline's with a long history."""
    fitted = np.log(rooflines[""].seconds(found.terms)) if len(found.terms) else np.zeros(0)
    software = found.known["framework"].to_numpy(dtype=str)
    for name in set(software) & set(rooflines):
        here = software == name
        fitted[here] = np.log(rooflines[name].seconds(found.terms[here]))
    planned = np.where(np.isfinite(found.planner_step_s), np.log(found.planner_step_s), fitted)
    weight = rows / (rows + PLANNER_ROWS)
    return np.asarray(weight * fitted + (1 - weight) * planned)


def log_memory(found: Described) -> np.ndarray:
    """log GB: the planner's estimate, or 16 bytes per parameter of a rank without one."""
    known = found.known
    plain = 16 * known.parameters / (known.tp * known.pp) / np.where(known.zero == 3, known.dp, 1) / 1e9
    return np.asarray(np.log(np.where(np.isfinite(found.planner_memory_gb), found.planner_memory_gb, plain)))


def failure_logit(found: Described) -> np.ndarray:
    """Logit of running out of memory: 0 if the estimate equals the device's memory, and a factor of ten in the odds per 30 % of it."""
    share = np.exp(log_memory(found)) / found.memory_gb
    return np.asarray(np.clip((share - 1) * 8, -4, 4))


def sigmoid(values: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-values)))
