"""Live views in a real Jupyter kernel: one output of the cell, drawn anew."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builders.hub_jobs import make_hub_job, make_running
from tests.servers.notebooks import Notebook, notebook

from tuneyard.api import TuneyardError
from tuneyard.cli.submit.notebook import NotebookSubmit
from tuneyard.cluster import Parcel, Sent, Shipment, Submission

ROOT = Path(__file__).parents[3]
RUN = """
from pathlib import Path

from tuneyard.api import load_jobspec
from tuneyard.cli.progress.views import open_progress
from tuneyard.tracking import Stage, TaskEvent, Warned

with open_progress(load_jobspec(Path("job.yaml"))) as view:
    view(TaskEvent(task="judge", state="started", kind="score"))
    view(Warned(task="judge", message="2 rows were <cut> \\x1b]0;title\\x07"))
    view(TaskEvent(task="judge", state="succeeded", kind="score", result={}))
"""
SUBMIT = """
from tests.unit.cli.test_notebook import tell
from tuneyard.cli.submit.view import open_submit_view

tell(open_submit_view(shown=True))
"""
JOB = """
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: j}
spec: {tasks: [{name: judge, score: {model: {name: m}, data: {source: s3://b/d}}}]}
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "job.yaml").write_text(JOB)
    with notebook(folder, {**os.environ, "PYTHONPATH": str(ROOT)}) as opened:
        yield opened


def test_a_run_is_one_output_that_is_drawn_anew(kernel: Notebook) -> None:
    cell = kernel.run(RUN)

    assert (cell.error, cell.printed) == ("", "")
    assert len(cell.states) > 2
    assert "✓ judge" in cell.shown
    last = cell.states[-1]["text/html"]
    assert last.count("2 rows were &lt;cut&gt;") == 1
    assert "\x1b" not in last + cell.shown


def test_a_submission_is_one_output_from_its_files_to_its_end(kernel: Notebook) -> None:
    cell = kernel.run(SUBMIT)

    assert (cell.error, cell.printed) == ("", "")
    texts = [state["text/plain"] for state in cell.states]
    assert "ships 4.0 KiB to s3://models/support-bot/_shipped:\n  chats.jsonl  4.0 KiB" in texts[0]
    assert any("1.0 KiB of 4.0 KiB" in text for text in texts)
    assert "shipped 4.0 KiB\nmaps/support-bot: submitted to the hub at h" in cell.shown
    assert "train runs on gcp-h100" in cell.shown
    assert "the hub does not answer; waiting for it" in cell.shown
    assert "maps/support-bot continues unwatched; wait again: tuneyard wait support-bot -n maps" in cell.shown


def tell(view: NotebookSubmit) -> None:
    """All that can be told of a submission; called in the kernel."""
    Path("chats.jsonl").write_text("x" * 4096)
    parcel = Parcel(field=(), text="chats.jsonl", name="chats.jsonl", files={"chats.jsonl": Path("chats.jsonl")}, single=True)
    job = make_hub_job()
    view.ships(Shipment(manifest={}, root="s3://models/support-bot/_shipped", parcels=(parcel,)), dry_run=False)
    with view.sending() as on_progress:
        view._cell._drawn_at = float("-inf")  # as if a second had gone by
        on_progress("chats.jsonl", 1024, 4096)
    view.submitted(Submission(job, "created"), Sent(new=(parcel,), there=()), "the hub at h")
    with view.following() as follow:
        follow(job)
        follow(make_hub_job(make_running()))
        follow.away(TuneyardError("the hub does not answer"))
    view.left(job)
