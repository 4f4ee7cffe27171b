"""Memory and speed of a task on a placement, and the choice of a plan that fits. Pure: no clock, network or threads."""

from tuneyard.planning.calibrating import calibrated
from tuneyard.planning.calibration import DEFAULT, Calibration, Efficiency
from tuneyard.planning.inference import EnginePlan, kv_bytes_per_sequence, resolve_engine_plan
from tuneyard.planning.memory import Estimate, estimate_memory
from tuneyard.planning.plan import Memory, Plan, Speed, StepTime
from tuneyard.planning.resolve import Site, best, plans, resolve
from tuneyard.planning.setup import Layout, Setup
from tuneyard.planning.speed import estimate_speed

__all__ = [
    "DEFAULT",
    "Calibration",
    "Efficiency",
    "EnginePlan",
    "Estimate",
    "Layout",
    "Memory",
    "Plan",
    "Setup",
    "Site",
    "Speed",
    "StepTime",
    "best",
    "calibrated",
    "estimate_memory",
    "estimate_speed",
    "kv_bytes_per_sequence",
    "plans",
    "resolve",
    "resolve_engine_plan",
]
