"""The answer of the hub to a submission, in a sentence."""

from __future__ import annotations

from tuneyard.cluster import HubJob, Submission


def outcome_words(made: Submission, hub: str) -> str:
    """The outcome of a submission, or of a dry run."""
    words = {
        "created": f"{hub} would take it" if made.dry_run else f"submitted to {hub}",
        "updated": "would change the job, which has not started" if made.dry_run else "changed the job, which had not started",
        "unchanged": f"there already and the same, {made.job.phase}",
    }
    return f"{made.job.label}: {words[made.outcome]}{' (dry run: nothing was changed)' if made.dry_run else ''}"


def left_words(job: HubJob) -> str:
    return f"{job.label} continues unwatched; wait again: tuneyard wait {job.name} -n {job.namespace}"
