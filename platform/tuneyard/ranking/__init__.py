"""Rankers: models that predict whether a user clicks, from wide tables of numbers, categories and sequences.

A ranker is built from a `RankerConfig` after DHEN (Zhang et al. 2022): features become embeddings (`features`), layers of ensembles of
interaction modules mix them (`interactions`, `ranker`), and a network on top gives a logit for each task.

- Data: `batches` makes tensors of columns, and `flat_rows` keeps those of a whole table on disk. `click_log` makes logs with known causes.
- Model: `tables` has the embedding tables, whole or sharded over ranks. `program` is a ranker as a program of `train.program`.
- Figures: `metrics` has normalised entropy, AUC and calibration, also by slice (`sliced_metrics`) and window (`windowed_metrics`).
- Files: `files` saves, loads and exports. `folder` reads a ranker's config without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneyard.ranking.batches import batch_of, batch_of_rows, tensors_of
    from tuneyard.ranking.click_log import Effects, generated_clicks
    from tuneyard.ranking.config import EnsembleLayer, RankerConfig, SparseFeature
    from tuneyard.ranking.files import export, load, save, write_ranker, write_table
    from tuneyard.ranking.flat_accesses import access_curves
    from tuneyard.ranking.flat_rows import FlatRows, stored_rows
    from tuneyard.ranking.folder import holds_ranker, read_config
    from tuneyard.ranking.metrics import JudgedRows, RankFigures, RankMetrics
    from tuneyard.ranking.program import RankerProgram
    from tuneyard.ranking.ranker import Ranker
    from tuneyard.ranking.sliced_metrics import Coded, SlicedFigures, SlicedMetrics, coded
    from tuneyard.ranking.statistics import Measured, measured
    from tuneyard.ranking.table_check import check_table
    from tuneyard.ranking.tables import (
        PREFETCHED,
        Costs,
        Placement,
        ShardedTables,
        TableShape,
        WholeTables,
        placed,
        shapes_of,
        table_names,
    )
    from tuneyard.ranking.task import config_of_task, training_steps
    from tuneyard.ranking.transforms import kinds_of, schema_of, transformed
    from tuneyard.ranking.windowed_metrics import WindowedMetrics, WindowFigures

_AT = {
    **dict.fromkeys(("batch_of", "batch_of_rows", "tensors_of"), "batches"),
    **dict.fromkeys(("Effects", "generated_clicks"), "click_log"),
    "check_table": "table_check",
    **dict.fromkeys(("Measured", "measured"), "statistics"),
    **dict.fromkeys(("EnsembleLayer", "RankerConfig", "SparseFeature"), "config"),
    **dict.fromkeys(("export", "load", "save", "write_ranker", "write_table"), "files"),
    "access_curves": "flat_accesses",
    **dict.fromkeys(("FlatRows", "stored_rows"), "flat_rows"),
    **dict.fromkeys(("holds_ranker", "read_config"), "folder"),
    **dict.fromkeys(("JudgedRows", "RankFigures", "RankMetrics"), "metrics"),
    "RankerProgram": "program",
    "Ranker": "ranker",
    **dict.fromkeys(("Coded", "SlicedFigures", "SlicedMetrics", "coded"), "sliced_metrics"),
    **dict.fromkeys(("WindowFigures", "WindowedMetrics"), "windowed_metrics"),
    **dict.fromkeys(
        (
            "PREFETCHED",
            "Costs",
            "Placement",
            "ShardedTables",
            "TableShape",
            "WholeTables",
            "placed",
            "shapes_of",
            "table_names",
        ),
        "tables",
    ),
    **dict.fromkeys(("config_of_task", "training_steps"), "task"),
    **dict.fromkeys(("kinds_of", "schema_of", "transformed"), "transforms"),
}
__all__ = [
    "PREFETCHED",
    "Coded",
    "Costs",
    "Effects",
    "EnsembleLayer",
    "FlatRows",
    "JudgedRows",
    "Measured",
    "Placement",
    "RankFigures",
    "RankMetrics",
    "Ranker",
    "RankerConfig",
    "RankerProgram",
    "ShardedTables",
    "SlicedFigures",
    "SlicedMetrics",
    "SparseFeature",
    "TableShape",
    "WholeTables",
    "WindowFigures",
    "WindowedMetrics",
    "access_curves",
    "batch_of",
    "batch_of_rows",
    "check_table",
    "coded",
    "config_of_task",
    "export",
    "generated_clicks",
    "holds_ranker",
    "kinds_of",
    "load",
    "measured",
    "placed",
    "read_config",
    "save",
    "schema_of",
    "shapes_of",
    "stored_rows",
    "table_names",
    "tensors_of",
    "training_steps",
    "transformed",
    "write_ranker",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name not in _AT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tuneyard.ranking.{_AT[name]}"), name)
