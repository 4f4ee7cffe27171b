"""The hub reads JobSpecs, Clusters and Schedules, and keeps RayJobs on members. All state lives in the API servers.

Read first, in this order: `hub` (the loop), `records` (the hub's memory of a job), `lifecycle` (all decisions about a job, pure),
`placements` (jobs in the scheduler), `member` (the hub's view of a member).
"""

from tuneyard_operators.hub.operator import run_hub
from tuneyard_operators.hub.settings import Settings

__all__ = ["Settings", "run_hub"]
