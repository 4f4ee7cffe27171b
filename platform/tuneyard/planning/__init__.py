"""Memory and speed of a task on a placement, and the choice of a plan that fits. Pure: no clock, network or threads."""

from tuneyard.planning.plan import Memory, Plan

__all__ = ["Memory", "Plan"]
