"""When each alert fires, and the near miss in which it does not: input series for `promtool test rules`.

Series are in promtool's notation: `0+1x10` is 0, 1, … 10, one value a minute. Times are minutes, and each series lasts for two hours.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """`fires`, `near`: series -> values; `at`: minutes after which the alert fires with `fires`, and does not yet one minute before if
    `waits`. `also_fires`, `also_near`: further series by which it fires at the end of the two hours, and by which it does not."""

    fires: dict[str, str]
    near: dict[str, str]
    at: int
    waits: bool = True
    also_fires: tuple[dict[str, str], ...] = ()
    also_near: tuple[dict[str, str], ...] = ()


HUB = 'instance="a"'
TEAM, JOB, SCHEDULE = 'team="maps"', 'namespace="maps",job="bot",team="maps"', 'namespace="maps",schedule="nightly"'
SLOW, QUICK = ("0+0x120", "0+1x120", "0+1x120"), ("0+1x120", "0+1x120", "0+1x120")


def cycles(counts: tuple[str, ...]) -> dict[str, str]:
    return {
        f'tuneyard_scheduling_cycle_seconds_bucket{{le="{bound}"}}': count
        for bound, count in zip(("2.5", "10", "+Inf"), counts, strict=True)
    }


def writes(failing: str, fine: str) -> dict[str, str]:
    name = 'tuneyard_api_requests_total{{cluster="hub",verb="PATCH",resource="jobspecs/status",code="{}"}}'
    return {name.format(500): failing, name.format(200): fine, name.format(409): "0+100x120"}


def failures(failed: str, ended: str, kind: str = "NodeLost") -> dict[str, str]:
    """`ended`: attempts that succeeded."""
    return {f'tuneyard_attempt_failures_total{{kind="{kind}"}}': failed, 'tuneyard_attempts_total{outcome="Succeeded"}': ended}


def waiting(age_s: int, gpus: int, **others: int) -> dict[str, str]:
    own = {f"tuneyard_queue_age_seconds{{{TEAM}}}": age_s, f"tuneyard_queued_gpus{{{TEAM}}}": gpus}
    pool = 'cluster="east",sku="h100-80gb"'
    names = {
        "idle": f"tuneyard_idle_gpus{{{pool}}}",
        "quota": f'tuneyard_team_quota_gpus{{{TEAM},sku="h100-80gb"}}',
        "allocated": f"tuneyard_allocated_gpus{{{TEAM},{pool}}}",
    }
    return {name: f"{value}x120" for name, value in (own | {names[key]: value for key, value in others.items()}).items()}


CASES: dict[str, Case] = {
    "TuneyardNoLeader": Case(
        {'tuneyard_leader{instance="a"}': "0x120", 'tuneyard_leader{instance="b"}': "0x120"},
        {'tuneyard_leader{instance="a"}': "0x120", 'tuneyard_leader{instance="b"}': "1x120"},
        2,
    ),
    "TuneyardTwoLeaders": Case(
        {'tuneyard_leader{instance="a"}': "1x120", 'tuneyard_leader{instance="b"}': "1x120"},
        {'tuneyard_leader{instance="a"}': "1x120", 'tuneyard_leader{instance="b"}': "0x120"},
        1,
    ),
    "TuneyardHubCannotWrite": Case(writes("0+5x120", "0+5x120"), writes("0+5x120", "0+100x120"), 13, waits=False),
    "TuneyardReconcileErrors": Case(
        {'tuneyard_reconcile_total{result="error"}': "0+1x120", 'tuneyard_reconcile_total{result="ok"}': "0+10x120"},
        {'tuneyard_reconcile_total{result="error"}': "0+1x120", 'tuneyard_reconcile_total{result="ok"}': "0+20x120"},
        11,
    ),
    "TuneyardCacheBehind": Case(
        {'tuneyard_cache_lag_seconds{cluster="east",resource="pods"}': "90x120"},
        {'tuneyard_cache_lag_seconds{cluster="east",resource="pods"}': "59x120"},
        2,
    ),
    "TuneyardSchedulingSlow": Case(cycles(SLOW), cycles(QUICK), 11),
    "TuneyardMemberUnreachable": Case(
        {'tuneyard_member_up{cluster="east"}': "0x120"},
        {'tuneyard_member_up{cluster="east",instance="a"}': "0 0 0 0 1x116"},
        5,
    ),
    "TuneyardMemberHeartbeatOld": Case(
        {'tuneyard_member_heartbeat_age_seconds{cluster="east"}': "301x120"},
        {'tuneyard_member_heartbeat_age_seconds{cluster="east"}': "300x120"},
        1,
    ),
    "TuneyardMemberCredentialsExpire": Case(
        {'tuneyard_member_credentials_expiry_timestamp_seconds{cluster="east"}': f"{6 * 86400}x120"},
        {'tuneyard_member_credentials_expiry_timestamp_seconds{cluster="east"}': f"{8 * 86400}x120"},
        10,
    ),
    "TuneyardRequestsRefused": Case(
        {'tuneyard_api_requests_total{cluster="east",verb="GET",resource="pods",code="403"}': "0+1x120"},
        {'tuneyard_api_requests_total{cluster="east",verb="GET",resource="pods",code="404"}': "0+1x120"},
        15,
        waits=False,
    ),
    "TuneyardQueueOld": Case(waiting(86401, 8), waiting(86400, 8), 15),
    "TuneyardQueueOldWhileGpusIdle": Case(
        waiting(3601, 8, idle=8),
        waiting(3601, 8, idle=7),
        15,
        also_near=(waiting(3601, 8, idle=0) | {'tuneyard_idle_gpus{cluster="west",sku="cpu"}': "200x120"},),
    ),
    "TuneyardQuotaNotMet": Case(waiting(1801, 8, quota=16, allocated=8), waiting(1801, 8, quota=16, allocated=9), 15),
    "TuneyardTeamBudgetNearlySpent": Case(
        {f"tuneyard_team_month_gpu_hours{{{TEAM}}}": "91x120", f"tuneyard_team_month_gpu_hours_limit{{{TEAM}}}": "100x120"},
        {f"tuneyard_team_month_gpu_hours{{{TEAM}}}": "89x120", f"tuneyard_team_month_gpu_hours_limit{{{TEAM}}}": "100x120"},
        5,
    ),
    "TuneyardAttemptsFail": Case(failures("0+1x120", "0+9x120"), failures("0+1x120", "0+9x120", "UserError"), 30, waits=False),
    "TuneyardMostAttemptsFail": Case(
        failures("0+1x120", "0+0.5x120"),
        failures("0+1x120", "0+2x120"),
        70,
        waits=False,
        also_fires=(failures("0+1x120", "0x120") | failures("0+9x120", "0x120", "Preempted"),),
        also_near=tuple(failures("0+1x120", "0x120", kind) for kind in ("UserError", "Preempted", "Cancelled", "Deadline")),
    ),
    "TuneyardJobRestarts": Case(
        {f"tuneyard_job_restarts_total{{{JOB}}}": "0 0 1 1 2 2 3 3x113"},
        {f"tuneyard_job_restarts_total{{{JOB}}}": "3 3 3 4 4x116"},
        30,
        waits=False,
    ),
    "TuneyardJobWaitsForData": Case(
        {f"tuneyard_data_wait_ratio{{{JOB}}}": "0.21x120"}, {f"tuneyard_data_wait_ratio{{{JOB}}}": "0.2x120"}, 15
    ),
    "TuneyardJobMfuLow": Case(
        {f"tuneyard_job_mfu_ratio{{{JOB}}}": "0.19x120", f"tuneyard_job_planned_mfu_ratio{{{JOB}}}": "0.4x120"},
        {f"tuneyard_job_mfu_ratio{{{JOB}}}": "0.2x120", f"tuneyard_job_planned_mfu_ratio{{{JOB}}}": "0.4x120"},
        30,
    ),
    "TuneyardJobCheckpointCostHigh": Case(
        {f"tuneyard_job_checkpoint_wait_ratio{{{JOB}}}": "0.11x120"}, {f"tuneyard_job_checkpoint_wait_ratio{{{JOB}}}": "0.1x120"}, 15
    ),
    "TuneyardScheduleRegressed": Case(
        {f"tuneyard_schedule_regressed{{{SCHEDULE}}}": "1x120"}, {f"tuneyard_schedule_regressed{{{SCHEDULE}}}": "0x120"}, 1, waits=False
    ),
    "TuneyardJobsStalled": Case({"tuneyard_stalled_jobs": "1x120"}, {"tuneyard_stalled_jobs": "0x120"}, 15),
    "TuneyardScheduleStalled": Case(
        {f"tuneyard_schedule_stalled{{{SCHEDULE}}}": "1x120"}, {f"tuneyard_schedule_stalled{{{SCHEDULE}}}": "0x120"}, 5
    ),
    "TuneyardScheduleMissed": Case(
        {f"tuneyard_schedule_overdue_seconds{{{SCHEDULE}}}": "601x120"}, {f"tuneyard_schedule_overdue_seconds{{{SCHEDULE}}}": "600x120"}, 1
    ),
    "TuneyardWebhooksFail": Case(
        {'tuneyard_webhooks_total{outcome="failed"}': "0 0 1x118"},
        {'tuneyard_webhooks_total{outcome="sent"}': "0 0 1x118"},
        30,
        waits=False,
    ),
    "TuneyardHistoryLags": Case({"tuneyard_history_lag_seconds": "901x120"}, {"tuneyard_history_lag_seconds": "900x120"}, 5),
    "TuneyardHistoryLosesRecords": Case(
        {'tuneyard_history_failures_total{reason="let go"}': "0 0 1x118"},
        {'tuneyard_history_failures_total{reason="away"}': "0 0 1x118"},
        30,
        waits=False,
    ),
    "TuneyardConsoleDown": Case(
        {'up{job="tuneyard-hub-console-metrics",namespace="tuneyard-system",instance="a"}': "0x120"},
        {
            f'up{{job="tuneyard-hub-console-metrics",namespace="tuneyard-system",instance="{each}"}}': f"{value}x120"
            for each, value in (("a", 0), ("b", 1))
        },
        5,
        also_fires=({'up{job="tuneyard-hub-console-metrics",namespace="tuneyard-system",instance="a"}': "1x10 stale"},),
        also_near=(
            {'up{job="tuneyard-hub-metrics",namespace="tuneyard-system",instance="a"}': "1x10 stale"},
            {
                'up{job="tuneyard-hub-console-metrics",namespace="tuneyard-system",instance="a"}': "1x10 stale",
                'up{job="tuneyard-hub-console-metrics",namespace="tuneyard-system",instance="b"}': "_x10 1x120",
            },
        ),
    ),
}
