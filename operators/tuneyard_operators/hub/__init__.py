"""The hub: JobSpecs, Clusters and Schedules on one side, RayJobs on members on the other.

`lifecycle.advance` decides, and is pure; `hub.Hub` looks, stores and acts; all state lives in the API servers.
"""

from tuneyard_operators.hub.operator import run_hub
from tuneyard_operators.hub.settings import Settings

__all__ = ["Settings", "run_hub"]
