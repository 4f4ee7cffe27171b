"""The hub: JobSpecs, Clusters and Schedules on one side, RayJobs on members on the other. All state lives in the API servers.

Read first, in this order: `hub` (the loop), `records` (what it knows about a job), `lifecycle` (the one place of decisions, pure),
`placements` (jobs in the scheduler), `member` (what it follows on a member).
"""

from tuneyard_operators.hub.operator import run_hub
from tuneyard_operators.hub.settings import Settings

__all__ = ["Settings", "run_hub"]
