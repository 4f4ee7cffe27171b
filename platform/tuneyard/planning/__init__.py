"""Memory and speed of a task on a placement, and the choice of a plan that fits. Pure: no clock, network or threads."""

from tuneyard.planning.memory import Estimate, estimate_memory
from tuneyard.planning.plan import Memory, Plan
from tuneyard.planning.resolve import resolve
from tuneyard.planning.setup import Layout, Setup

__all__ = ["Estimate", "Layout", "Memory", "Plan", "Setup", "estimate_memory", "resolve"]
