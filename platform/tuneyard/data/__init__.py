"""Training data and rows to score. A data set becomes canonical samples, then tokens, then packed rows, which are cached.

`tuneyard data inspect` shows a data set before training. The room loads lazily: its modules import pyarrow, datasets or transformers
on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneyard.data.cache import cache_root, cached_folder
    from tuneyard.data.counting import count_data
    from tuneyard.data.dataset import open_dataset
    from tuneyard.data.inspection import Inspection, inspect
    from tuneyard.data.order import MixedRowOrder, Order
    from tuneyard.data.preparation import Prepared, prepare
    from tuneyard.data.prompt_form import prompts_are_chats, set_prompt_form
    from tuneyard.data.raw_rows import prepare_rows
    from tuneyard.data.report import DataReport
    from tuneyard.data.score_counting import count_score_rows
    from tuneyard.data.score_rows import ScoreRow, ScoreRows
    from tuneyard.data.streaming import made_for_evaluation, read_so_far, shared_work_of, work_of
    from tuneyard.data.turns import turn_end
    from tuneyard.data.way import Ways, ways_before
    from tuneyard.data.ways import choose_ways, prepared_here

__all__ = [
    "DataReport",
    "Inspection",
    "MixedRowOrder",
    "Order",
    "Prepared",
    "ScoreRow",
    "ScoreRows",
    "Ways",
    "cache_root",
    "cached_folder",
    "choose_ways",
    "count_data",
    "count_score_rows",
    "inspect",
    "made_for_evaluation",
    "open_dataset",
    "prepare",
    "prepare_rows",
    "prepared_here",
    "prompts_are_chats",
    "read_so_far",
    "set_prompt_form",
    "shared_work_of",
    "turn_end",
    "ways_before",
    "work_of",
]

_HOMES = {
    "DataReport": "report",
    "Inspection": "inspection",
    "MixedRowOrder": "order",
    "Order": "order",
    "Prepared": "preparation",
    "ScoreRow": "score_rows",
    "ScoreRows": "score_rows",
    "Ways": "way",
    "cache_root": "cache",
    "cached_folder": "cache",
    "choose_ways": "ways",
    "count_data": "counting",
    "count_score_rows": "score_counting",
    "inspect": "inspection",
    "made_for_evaluation": "streaming",
    "open_dataset": "dataset",
    "prepare": "preparation",
    "prepare_rows": "raw_rows",
    "prepared_here": "ways",
    "prompts_are_chats": "prompt_form",
    "read_so_far": "streaming",
    "set_prompt_form": "prompt_form",
    "shared_work_of": "streaming",
    "turn_end": "turns",
    "ways_before": "way",
    "work_of": "streaming",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
