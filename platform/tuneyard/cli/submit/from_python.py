"""`tuneyard.submit(spec)`: what `tuneyard submit` does, for programs and notebooks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tuneyard.api import JobSpec, load_jobspec
from tuneyard.cli.checks import check_shipped_data
from tuneyard.cli.jobs.wait import followed, must_succeed
from tuneyard.cli.progress.views import watched
from tuneyard.cli.submit.view import SubmitView, open_submit_view
from tuneyard.cluster import Hub, HubJob, Submission, manifest_of, open_hub, shipment_of, submit_shipment
from tuneyard.cluster.shipping import LIMIT_BYTES, dotted


def submit(
    spec: JobSpec | Path | str,
    *,
    out: str | None = None,
    ship_limit_bytes: int = LIMIT_BYTES,
    dry_run: bool = False,
    wait: bool = False,
    timeout_s: float | None = None,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | Path | None = None,
    progress: bool | None = None,
) -> Submission:
    """Give a job to the hub: a JobSpec, or the path of its file. Returns as soon as the hub has stored the job; with `wait`, when the job
    has succeeded.

    Files with relative paths are shipped first: from the file's folder, or, for a JobSpec object, from the working folder. Submitting the
    same job again changes nothing. `out`: URI for all output, instead of `storage.output`. `wait`: Ctrl-C, or a notebook's stop button,
    ends only the wait; `.job` of the answer is then the last known state. `timeout_s`: longest wait. `progress`: show progress, in a
    notebook as one cell that is kept up to date, else on stderr; default: in notebooks and on terminals.

    Raises TuneyardError where the hub cannot be asked, or the job has not ended within `timeout_s`; BadInput where the job is wrong, its
    files cannot be shipped, or another job of its name exists; with `wait`, JobFailed where the job fails or is cancelled.
    """
    hub = open_hub(namespace=namespace, context=context, kubeconfig=kubeconfig)
    base_dir = Path.cwd() if isinstance(spec, JobSpec) else Path(spec).absolute().parent
    shipment = shipment_of(manifest_of(spec, namespace, hub.template), base_dir, out=out, limit_bytes=ship_limit_bytes, find=hub.template)
    asked = spec if isinstance(spec, JobSpec) else load_jobspec(Path(spec), hub.template)
    check_shipped_data(asked, base_dir, lambda place, cause: f"{dotted(place)}: {cause}")
    view = open_submit_view(shown=watched() if progress is None else progress)
    view.ships(shipment, dry_run=dry_run)
    with view.sending() as on_progress:
        made, sent = submit_shipment(hub, shipment, dry_run=dry_run, on_progress=on_progress)
    view.submitted(made, sent, hub.address.hub)
    return replace(made, job=_ended(hub, made.job, view, timeout_s)) if wait and not dry_run else made


def _ended(hub: Hub, job: HubJob, view: SubmitView, timeout_s: float | None) -> HubJob:
    """The job after its success, or its last known state if the wait was interrupted."""
    last = job

    def seen(now: HubJob) -> None:
        nonlocal last
        last = now
        shown(now)

    try:
        with view.following() as shown:
            followed(hub, job.name, job.namespace, seen, shown.away, timeout_s=timeout_s)
    except KeyboardInterrupt:
        view.left(last)
        return last
    must_succeed(last)
    return last
