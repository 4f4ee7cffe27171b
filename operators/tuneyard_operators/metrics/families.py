"""The metrics whose values are the hub's present state. docs/monitoring.md has the table of all metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """One metric. `name`: as in queries, with `_total` for counters."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def is_counter(self) -> bool:
        return self.name.endswith("_total")


Sample = tuple[Family, tuple[str, ...], float]
"""A metric, the values of its labels, its value."""

_POOL = ("cluster", "sku")
_JOB = ("namespace", "job", "team")
_SCHEDULE = ("namespace", "schedule")

JOBS = Family("tuneyard_jobs", "JobSpecs by phase", ("phase",))
JOBS_WITHOUT_SERIES = Family("tuneyard_jobs_without_series", "unfinished jobs beyond the limit of series of jobs")
STALLED_JOBS = Family("tuneyard_stalled_jobs", "started jobs that wait for a person: the hub cannot read their spec or status")

QUEUED_JOBS = Family("tuneyard_queued_jobs", "jobs with a task that waits for a placement", ("team",))
QUEUED_GPUS = Family("tuneyard_queued_gpus", "fewest GPUs with which all waiting tasks could start", ("team",))
QUEUE_AGE = Family("tuneyard_queue_age_seconds", "age of the oldest job that waits for a placement", ("team",))

MEMBER_UP = Family("tuneyard_member_up", "1 while the member can be reached", ("cluster",))
HEARTBEAT_AGE = Family("tuneyard_member_heartbeat_age_seconds", "seconds since the last heartbeat", ("cluster",))
CREDENTIALS_END = Family(
    "tuneyard_member_credentials_expiry_timestamp_seconds",
    "when the hub's credentials for a member expire, in seconds since 1970; absent: they do not say",
    ("cluster",),
)
GPUS = Family("tuneyard_gpus", "GPUs, or worker slots", _POOL)
FREE_GPUS = Family("tuneyard_free_gpus", "GPUs of ready nodes that no pod of others holds", _POOL)
IDLE_GPUS = Family("tuneyard_idle_gpus", "free GPUs of usable members that no attempt holds", _POOL)
ALLOCATED_GPUS = Family("tuneyard_allocated_gpus", "GPUs that attempts hold", ("team", *_POOL))
USED_GPUS = Family(
    "tuneyard_used_gpus",
    "GPUs of running attempts, less the share of time in which their ranks wait for data or for a checkpoint",
    ("team", *_POOL),
)
GPU_SECONDS = Family("tuneyard_gpu_seconds_total", "GPU-seconds that attempts have held since this replica leads", ("team", *_POOL))
COST = Family("tuneyard_cost_total", "price of these GPU-seconds, in the currency of the Clusters", ("team", *_POOL))

TEAM_QUOTA = Family("tuneyard_team_quota_gpus", "GPUs that the team is guaranteed", ("team", "sku"))
TEAM_BORROWED = Family("tuneyard_team_borrowed_gpus", "GPUs that the team holds above its quota", ("team", "sku"))
TEAM_HOURS = Family("tuneyard_team_month_gpu_hours", "GPU-hours of the team in this month (UTC), of deleted jobs too", ("team",))
TEAM_COST = Family("tuneyard_team_month_cost", "price of the team's GPU-hours in this month", ("team",))
TEAM_LIMIT = Family("tuneyard_team_month_gpu_hours_limit", "GPU-hours that the team may use in a month; absent: no limit", ("team",))

JOB_GPUS = Family("tuneyard_job_gpus", "GPUs that the job's attempts hold", _JOB)
JOB_MFU = Family("tuneyard_job_mfu_ratio", "model FLOPs utilisation, 0 to 1", _JOB)
JOB_PLANNED_MFU = Family("tuneyard_job_planned_mfu_ratio", "model FLOPs utilisation by the plan of the attempt, 0 to 1", _JOB)
JOB_GPU_USE = Family("tuneyard_job_gpu_utilization_ratio", "share of time in which the job's GPUs are busy, as its machines tell", _JOB)
JOB_CPU_USE = Family("tuneyard_job_cpu_utilization_ratio", "share of the processors of the job's machines that are busy", _JOB)
JOB_NETWORK = Family("tuneyard_job_network_bytes_per_second", "bytes that a machine of the job sends, as a mean over machines", _JOB)
JOB_HOST_MEMORY = Family("tuneyard_job_host_memory_bytes", "memory in use on the fullest machine of the job", _JOB)
JOB_TOKENS = Family("tuneyard_job_tokens_per_second", "tokens per second of all workers", _JOB)
DATA_WAIT = Family("tuneyard_data_wait_ratio", "share of the last minute in which ranks wait for data, from 1 %", _JOB)
CHECKPOINT_WAIT = Family(
    "tuneyard_job_checkpoint_wait_ratio", "share of the last half hour in which training stands still for checkpoints", _JOB
)
CHECKPOINT_SECONDS = Family("tuneyard_job_checkpoint_seconds", "seconds from the step of the last checkpoint to its commit", _JOB)
CHECKPOINT_AGE = Family("tuneyard_job_checkpoint_age_seconds", "seconds since the last commit, or since its ranks began without one", _JOB)
JOB_PROGRESS = Family("tuneyard_job_progress_ratio", "steps, rows or trials done, as a share of all", _JOB)
JOB_COST = Family("tuneyard_job_cost_total", "price of the job so far, in the currency of the Clusters", _JOB)
JOB_GPU_SECONDS = Family("tuneyard_job_gpu_seconds_total", "GPU-seconds that the job has held", _JOB)
JOB_RESTARTS = Family("tuneyard_job_restarts_total", "attempts of the job beyond the first of each task, but for servers that slept", _JOB)

REGRESSED = Family("tuneyard_schedule_regressed", "1 where the newest measured run has regressed", _SCHEDULE)
SCHEDULE_STALLED = Family("tuneyard_schedule_stalled", "1 where the hub cannot follow the Schedule", _SCHEDULE)
SCHEDULE_MISSED = Family("tuneyard_schedule_missed", "1 where the newest run was missed or its job was lost", _SCHEDULE)
SCHEDULE_OVERDUE = Family("tuneyard_schedule_overdue_seconds", "seconds since the next run was due; 0: it is not due", _SCHEDULE)

QUEUE_DEPTH = Family("tuneyard_workqueue_depth", "jobs that wait to be reconciled, or are being reconciled")
CACHE_LAG = Family(
    "tuneyard_cache_lag_seconds", "seconds since the hub's copy of a resource is out of date; 0: it is current", ("cluster", "resource")
)
UNREADABLE = Family("tuneyard_unreadable_objects", "objects of which the hub cannot read all", ("cluster", "resource"))
HISTORY_LAG = Family("tuneyard_history_lag_seconds", "age of the oldest change that is not in run history")
HISTORY_WAITING = Family("tuneyard_history_waiting_jobs", "jobs whose last change is not in run history")
HISTORY_HELD = Family("tuneyard_history_held_jobs", "deleted JobSpecs that wait for their record")
TRACE_WAITING = Family("tuneyard_trace_waiting_jobs", "jobs with spans that may not be sent yet")

FAMILIES = tuple(found for found in list(globals().values()) if isinstance(found, Family))
