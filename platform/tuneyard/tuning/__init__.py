"""Search for the fastest settings of a task, learned from every run (after CubicML, Meta 2024).

`history` turns runs into rows, `features` describes the rows, `predictor` learns speed, failure and memory from them, `searcher` chooses
points, and `search` measures them beside the file's own settings.

Pure: the input is rows, measurements and random generators, the output predictions and points to try. Names load on first use, so that
importing the room costs nothing where LightGBM and pandas are not needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneyard.tuning.baselines import Random, Tpe
    from tuneyard.tuning.features import FEATURES, Feature, describe
    from tuneyard.tuning.history import calibration_of, history_frame, imported_runs, published_runs, settings_row
    from tuneyard.tuning.planned import PlannedExpectation
    from tuneyard.tuning.policy import PolicySettings
    from tuneyard.tuning.predictor import Predictor
    from tuneyard.tuning.record import Effect, Record, Trial, effects
    from tuneyard.tuning.rows import INPUTS, OPTIONAL, OUTCOMES, setup_of
    from tuneyard.tuning.search import IncumbentFailed, Search, Shares, shares
    from tuneyard.tuning.searcher import Expectation, Outlook, PolicySearcher, PredictorExpectation, Searcher, SearchSettings
    from tuneyard.tuning.settings import (
        default_settings,
        default_settings_of_engines,
        default_settings_of_program,
        default_settings_of_ranker,
        refuse_without_effect,
    )
    from tuneyard.tuning.space import Point, Space

_ROOMS = {
    "baselines": ("Random", "Tpe"),
    "features": ("FEATURES", "Feature", "describe"),
    "history": ("calibration_of", "history_frame", "imported_runs", "published_runs", "settings_row"),
    "policy": ("PolicySettings",),
    "predictor": ("Predictor",),
    "rows": ("INPUTS", "OPTIONAL", "OUTCOMES", "setup_of"),
    "record": ("Effect", "Record", "Trial", "effects"),
    "search": ("IncumbentFailed", "Search", "Shares", "shares"),
    "searcher": ("Expectation", "Outlook", "PolicySearcher", "PredictorExpectation", "SearchSettings", "Searcher"),
    "planned": ("PlannedExpectation",),
    "settings": (
        *("default_settings", "default_settings_of_engines", "default_settings_of_program", "default_settings_of_ranker"),
        "refuse_without_effect",
    ),
    "space": ("Point", "Space"),
}
_HOMES = {name: module for module, names in _ROOMS.items() for name in names}
__all__ = [
    "FEATURES",
    "INPUTS",
    "OPTIONAL",
    "OUTCOMES",
    "Effect",
    "Expectation",
    "Feature",
    "IncumbentFailed",
    "Outlook",
    "PlannedExpectation",
    "Point",
    "PolicySearcher",
    "PolicySettings",
    "Predictor",
    "PredictorExpectation",
    "Random",
    "Record",
    "Search",
    "SearchSettings",
    "Searcher",
    "Shares",
    "Space",
    "Tpe",
    "Trial",
    "calibration_of",
    "default_settings",
    "default_settings_of_engines",
    "default_settings_of_program",
    "default_settings_of_ranker",
    "describe",
    "effects",
    "history_frame",
    "imported_runs",
    "published_runs",
    "refuse_without_effect",
    "settings_row",
    "setup_of",
    "shares",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
