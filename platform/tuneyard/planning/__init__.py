"""Estimates of memory and speed for a task on a placement, and the search for a plan that fits. Pure: no clock, network or threads.

A `Setup` describes one training step. `memory` and `speed` estimate it, `search` enumerates the layouts that fit, `resolve` returns the
best plan, and `refusal` explains why no plan fits and proposes the smallest change.
"""

from tuneyard.planning.activations import CHUNK_ELEMENTS
from tuneyard.planning.calibration import DEFAULT, Calibration, Efficiency
from tuneyard.planning.calibration_fit import calibrated
from tuneyard.planning.choice import best
from tuneyard.planning.data_rates import DataRate, past_rates, usual_rate
from tuneyard.planning.feed import SMALL_STALL, Feed, Machines, Staff, feed_of, stall_share, workers_needed
from tuneyard.planning.host import SWAPPED_ELEMENTS
from tuneyard.planning.inference import (
    EnginePlan,
    engine_length,
    gpus_of_machine,
    keeps_no_cache,
    kv_bytes_per_sequence,
    resolve_engine_plan,
    step_tokens,
)
from tuneyard.planning.length import PACKED, DataCount, Interval, Length, length_of, steps_of_epochs
from tuneyard.planning.links import usual_network_gb_s
from tuneyard.planning.memory import LIBRARIES_GB, Estimate, estimate_memory
from tuneyard.planning.open_batch import plan_with_rows, undividable
from tuneyard.planning.plan import Memory, Plan, Speed, StepTime
from tuneyard.planning.program import NOT_PREDICTED, plan_of_program
from tuneyard.planning.ranker import plan_of_ranker, refuse_without_room, room_gb
from tuneyard.planning.ranker_shape import RankerShape
from tuneyard.planning.ranker_speed import CELL_S, ID_S, vector_bytes
from tuneyard.planning.resolve import check_layout, fits, paced, plans, resolve
from tuneyard.planning.setup import Layout, Setup
from tuneyard.planning.site import Site
from tuneyard.planning.speed import estimate_speed

__all__ = [
    "CELL_S",
    "CHUNK_ELEMENTS",
    "DEFAULT",
    "ID_S",
    "LIBRARIES_GB",
    "NOT_PREDICTED",
    "PACKED",
    "SMALL_STALL",
    "SWAPPED_ELEMENTS",
    "Calibration",
    "DataCount",
    "DataRate",
    "Efficiency",
    "EnginePlan",
    "Estimate",
    "Feed",
    "Interval",
    "Layout",
    "Length",
    "Machines",
    "Memory",
    "Plan",
    "RankerShape",
    "Setup",
    "Site",
    "Speed",
    "Staff",
    "StepTime",
    "best",
    "calibrated",
    "check_layout",
    "engine_length",
    "estimate_memory",
    "estimate_speed",
    "feed_of",
    "fits",
    "gpus_of_machine",
    "keeps_no_cache",
    "kv_bytes_per_sequence",
    "length_of",
    "paced",
    "past_rates",
    "plan_of_program",
    "plan_of_ranker",
    "plan_with_rows",
    "plans",
    "refuse_without_room",
    "resolve",
    "resolve_engine_plan",
    "room_gb",
    "stall_share",
    "step_tokens",
    "steps_of_epochs",
    "undividable",
    "usual_network_gb_s",
    "usual_rate",
    "vector_bytes",
    "workers_needed",
]
