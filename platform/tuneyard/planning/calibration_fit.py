"""Efficiencies fitted to the speed of past runs: robust least squares on logarithms, with a prior."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import exp, log
from typing import TYPE_CHECKING

from tuneyard.api import BadInput
from tuneyard.planning.calibration import DEFAULT, Calibration, Efficiency
from tuneyard.planning.setup import Setup
from tuneyard.planning.speed import estimate_speed

if TYPE_CHECKING:
    import numpy as np

_SHARES = ("matmul", "attention", "memory", "link", "network")
_TIMES = ("network_latency_s", "launch_s", "queue_s")
_FITTED = (*_SHARES, *_TIMES)
_PRIOR = 0.7
"""Prior of an efficiency: off by a factor of two (e^0.7), one standard deviation."""
_NOISE = 0.15
"""Prior of a run's noise: 15 %. Larger errors count linearly, not by their square."""
_MOST_ROWS = 400


def calibrated(rows: Iterable[tuple[Setup, float]], prior: Calibration = DEFAULT) -> Calibration:
    """`prior`, corrected by measured tokens per second and GPU. Each SKU in `rows` is fitted separately.

    Minimises sum rho((log predicted - log measured) / 0.15) + sum (log of each factor / 0.7)^2 with rho the soft L1 loss: few rows move the
    prior little, and wrong rows hardly at all. More than 400 rows of a SKU are thinned evenly. Raises BadInput for a speed that is not
    above zero.
    """
    by_sku: dict[str, list[tuple[Setup, float]]] = {}
    for setup, measured in rows:
        if not measured > 0:
            raise BadInput(f"a run cannot have reached {measured} tokens/s", "leave out the runs that did not finish")
        by_sku.setdefault(setup.gpu.sku, []).append((setup, measured))
    fitted = {sku: _fit(sku, given[:: 1 + len(given) // _MOST_ROWS], prior) for sku, given in by_sku.items()}
    return replace(prior, skus={**prior.skus, **fitted})


def _fit(sku: str, rows: Sequence[tuple[Setup, float]], prior: Calibration) -> Efficiency:
    import numpy as np  # imported here because commands without a fit start sooner
    from scipy.optimize import least_squares

    base = prior.of(rows[0][0].gpu)
    measured = np.array([log(value) for _, value in rows])

    def residuals(logs: np.ndarray) -> np.ndarray:
        calibration = replace(prior, skus={sku: _scaled(base, logs)})
        predicted = np.array([log(estimate_speed(setup, calibration).tokens_per_s_per_gpu) for setup, _ in rows])
        return np.concatenate([(predicted - measured) / _NOISE, logs / _PRIOR])

    # The difference step is wide because terms that hide one another have kinks, and are flat beside them.
    found = least_squares(residuals, np.zeros(len(_FITTED)), loss="soft_l1", diff_step=0.02, x_scale=1.0, max_nfev=15)
    return _scaled(base, found.x)


def _scaled(base: Efficiency, logs: np.ndarray) -> Efficiency:
    values = {name: getattr(base, name) * exp(value) for name, value in zip(_FITTED, logs, strict=True)}
    return replace(base, **{name: min(value, 1.0) if name in _SHARES else value for name, value in values.items()})
