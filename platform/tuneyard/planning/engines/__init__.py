"""Speed of the engines of score tasks: prefill and decode by a roofline, the time of a data set, and its correction by past runs."""

from tuneyard.planning.engines.correction import UNCORRECTED, Correction, ScoreRun, corrected_by
from tuneyard.planning.engines.dataset import DataSetTime, data_set_time
from tuneyard.planning.engines.efficiency import IN_USE, EngineEfficiency
from tuneyard.planning.engines.rows import ScoreCount, row_lengths, rows_at_most, uncounted
from tuneyard.planning.engines.speed import Engine, EngineSpeed, EngineTime, RowLengths
from tuneyard.planning.engines.task import ScorePlan
from tuneyard.planning.engines.work import EngineModel

__all__ = [
    "IN_USE",
    "UNCORRECTED",
    "Correction",
    "DataSetTime",
    "Engine",
    "EngineEfficiency",
    "EngineModel",
    "EngineSpeed",
    "EngineTime",
    "RowLengths",
    "ScoreCount",
    "ScorePlan",
    "ScoreRun",
    "corrected_by",
    "data_set_time",
    "row_lengths",
    "rows_at_most",
    "uncounted",
]
