"""What an attempt tells its member's API server, and what it hears from it: a real server, and the rights that the chart gives a job."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.testcluster import Hub
from tests.testcluster.clusters import Clusters
from tests.testcluster.waiting import wait_for

from tuneyard.api import FailureKind
from tuneyard.api.attempt_report import AttemptReport, AttemptState
from tuneyard.api.schema import main as write_crds
from tuneyard.api.status import Phase, Progress
from tuneyard.cli.progress.plain import PlainProgress
from tuneyard.runtime import run_attempt
from tuneyard.runtime.attempt.member_api import ApiServer, ApiUnavailable, ReportObject
from tuneyard.runtime.attempt.reporter import AttemptReporter

NAMESPACE = "tuneyard-jobs"
REPORTS = f"/apis/tuneyard.dev/v1alpha1/namespaces/{NAMESPACE}/attemptreports"
ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tuneyard-job", "namespace": NAMESPACE}}
# Those of charts/tuneyard-member.
RIGHTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "tuneyard-job", "namespace": NAMESPACE},
    "rules": [
        {"apiGroups": ["tuneyard.dev"], "resources": ["attemptreports"], "verbs": ["create", "get"]},
        {"apiGroups": ["tuneyard.dev"], "resources": ["attemptreports/status"], "verbs": ["patch"]},
    ],
}
GRANTED = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "tuneyard-job", "namespace": NAMESPACE},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tuneyard-job"},
    "subjects": [{"kind": "ServiceAccount", "name": "tuneyard-job", "namespace": NAMESPACE}],
}


@dataclass(frozen=True)
class Member:
    """An API server, and what a pod of a job there would find mounted."""

    hub: Hub
    pod: ApiServer

    def report(self, name: str) -> AttemptReport:
        return AttemptReport.model_validate(self.hub.api.get(f"{REPORTS}/{name}"))

    def state(self, name: str) -> AttemptState | None:
        found = self.hub.api.find(f"{REPORTS}/{name}")
        return AttemptReport.model_validate(found).status if found else None

    def ask_to_stop(self, name: str, reason: str) -> None:
        self.hub.api.patch(f"{REPORTS}/{name}", {"spec": {"stop": {"reason": reason, "graceS": 60}}})

    def new_token(self) -> None:
        self.pod.token_file.write_text(self.hub.token("tuneyard-job", NAMESPACE))


@pytest.fixture(scope="module")
def member(plain: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Member:
    crds, account = tmp_path_factory.mktemp("crds"), tmp_path_factory.mktemp("account")
    write_crds(str(crds))
    hub = plain.members[1]
    hub.apply(crds / "attemptreports.yaml", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    hub.apply(ACCOUNT, RIGHTS, GRANTED)
    authority = yaml.safe_load(hub.kubeconfig.read_text())["clusters"][0]["cluster"]["certificate-authority-data"]
    (account / "ca.crt").write_bytes(base64.b64decode(authority))
    made = Member(hub, ApiServer(hub.server, account / "ca.crt", account / "token"))
    made.new_token()
    return made


def running(step: int) -> AttemptState:
    progress = Progress(step=step, of=40, loss=3.5, eta_s=12.5, summary=f"{step}/40")
    return AttemptState(phase=Phase.RUNNING, progress=progress, metrics={"perplexity": 3.0})


def test_the_report_is_made_once_and_then_replaced(member: Member) -> None:
    report = ReportObject(member.pod, NAMESPACE, "bot-tune-1")
    assert report.put(running(7)) is None
    state = member.state("bot-tune-1")
    assert state is not None
    assert (state.progress.summary, state.progress.loss, state.progress.eta_s) == ("7/40", 3.5, 12.5)
    report.put(AttemptState(phase=Phase.SUCCEEDED, progress=Progress(step=40, of=40)))
    state = member.state("bot-tune-1")
    assert state is not None
    assert (state.phase, state.progress.eta_s, state.progress.loss) == (Phase.SUCCEEDED, None, None)


def test_a_report_that_is_too_long_is_cut_and_heard(member: Member) -> None:
    """An API server would refuse all of it, and the attempt would count as silent."""
    uris = [f"s3://bucket/{number}" for number in range(20_000)]
    ReportObject(member.pod, NAMESPACE, "bot-tune-long").put(running(3).model_copy(update={"message": "x" * 700_000, "artifacts": uris}))
    state = member.state("bot-tune-long")
    assert state is not None
    assert (len(state.message), len(state.artifacts), state.progress.step) == (4096, 10_000, 3)


def test_another_process_goes_on_with_the_same_report(member: Member) -> None:
    ReportObject(member.pod, NAMESPACE, "bot-tune-2").put(running(1))
    ReportObject(member.pod, NAMESPACE, "bot-tune-2").put(running(2))
    assert member.state("bot-tune-2").progress.step == 2  # type: ignore[union-attr]


def test_the_answer_tells_that_it_shall_stop(member: Member) -> None:
    report = ReportObject(member.pod, NAMESPACE, "bot-tune-3")
    report.put(running(1))
    member.ask_to_stop("bot-tune-3", "Preempted")
    stop = report.put(running(2))
    assert stop is not None
    assert (stop.reason, stop.grace_s) == ("Preempted", 60)


def test_a_job_may_touch_nothing_else(member: Member) -> None:
    with pytest.raises(ApiUnavailable, match="403"):
        ReportObject(member.pod, "default", "bot-tune-4").put(running(1))


def test_a_token_that_was_replaced_is_read_anew(member: Member) -> None:
    report = ReportObject(member.pod, NAMESPACE, "bot-tune-5")
    member.pod.token_file.write_text("no-longer-valid")
    with pytest.raises(ApiUnavailable, match="401"):
        report.put(running(1))
    member.new_token()
    report.put(running(2))
    assert member.state("bot-tune-5").progress.step == 2  # type: ignore[union-attr]


def test_a_report_that_was_removed_comes_back(member: Member) -> None:
    report = ReportObject(member.pod, NAMESPACE, "bot-tune-6")
    report.put(running(1))
    member.hub.api.call("DELETE", f"{REPORTS}/bot-tune-6")
    report.put(running(2))
    assert member.state("bot-tune-6").progress.step == 2  # type: ignore[union-attr]


def test_news_are_told_in_time_and_nobody_waits_for_it(member: Member) -> None:
    reporter = AttemptReporter(ReportObject(member.pod, NAMESPACE, "bot-tune-7"))
    for step in range(200):
        reporter.tell(running(step))
    wait_for("the newest step", lambda: (state := member.state("bot-tune-7")) is not None and state.progress.step == 199)
    first = member.state("bot-tune-7")
    assert first is not None
    assert first.observed_at.endswith("Z")
    # Without news it says that it lives.
    wait_for("a sign of life", lambda: member.state("bot-tune-7").observed_at != first.observed_at)  # type: ignore[union-attr]
    member.ask_to_stop("bot-tune-7", "Cancelled")
    wait_for("the wish of the hub", lambda: reporter.stop)
    assert reporter.finish(running(200))
    assert member.state("bot-tune-7").progress.step == 200  # type: ignore[union-attr]


def test_last_words_are_repeated_until_the_api_server_is_back(member: Member) -> None:
    complaints: list[str] = []
    reporter = AttemptReporter(ReportObject(member.pod, NAMESPACE, "bot-tune-8"), complain=complaints.append)
    reporter.tell(running(1))
    wait_for("the first report", lambda: member.state("bot-tune-8"))
    member.hub.stop("kube-apiserver")
    reporter.tell(running(2))
    wait_for("a report that is not heard", lambda: complaints)
    heard: list[bool] = []
    last = threading.Thread(target=lambda: heard.append(reporter.finish(AttemptState(phase=Phase.SUCCEEDED))))
    last.start()
    member.hub.start("kube-apiserver")
    last.join(120)
    assert heard == [True]
    assert member.state("bot-tune-8").phase is Phase.SUCCEEDED  # type: ignore[union-attr]
    assert len(complaints) == 1, "said once, not at every try"


def test_without_an_api_server_it_gives_up_after_its_time(member: Member) -> None:
    nowhere = ApiServer("https://127.0.0.1:1", member.pod.ca_file, member.pod.token_file)
    reporter = AttemptReporter(ReportObject(nowhere, NAMESPACE, "x"), complain=lambda _text: None)
    assert not reporter.finish(AttemptState(phase=Phase.SUCCEEDED), limit_s=1.0)
    assert not AttemptReporter(None).finish(AttemptState())


# --- whole attempts: process tasks, which need no Ray. Those of ranks: tests/integration/runtime/test_attempts.py


def environment(folder: Path, name: str, command: str) -> dict[str, str]:
    task = {"name": "prepare", "process": {"command": ["sh", "-c", command]}}
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "bot"}, "spec": {"tasks": [task]}}
    return {
        "TUNEYARD_JOB": json.dumps(job),
        "TUNEYARD_TASK": "prepare",
        "TUNEYARD_ATTEMPT": "1",
        "TUNEYARD_ATTEMPT_NAME": name,
        "TUNEYARD_NAMESPACE": NAMESPACE,
        "TUNEYARD_RUN": "uid",
        "TUNEYARD_OUTPUT": str(folder / "out"),
        "TUNEYARD_SKU": "cpu",
        "TUNEYARD_SCRATCH": str(folder / "scratch"),
    }


def test_an_attempt_tells_of_its_success(member: Member, tmp_path: Path) -> None:
    code = run_attempt(environment(tmp_path, "bot-prepare-1", "date > $TUNEYARD_OUTPUT/when"), PlainProgress, member.pod)
    state = member.state("bot-prepare-1")
    assert code == 0
    assert state is not None
    assert state.phase is Phase.SUCCEEDED
    assert state.metrics["files"] == 1
    assert state.artifacts == [str(tmp_path / "out/prepare/files")]


def test_an_attempt_tells_how_it_failed(member: Member, tmp_path: Path) -> None:
    code = run_attempt(environment(tmp_path, "bot-prepare-2", "echo before the end; exit 7"), PlainProgress, member.pod)
    state = member.state("bot-prepare-2")
    assert code == 1
    assert state is not None
    assert state.failure is not None
    assert state.failure.kind is FailureKind.USER_ERROR
    assert state.failure.message == "the command of task prepare exited 7"
    assert state.failure.log_tail == "  before the end"
    assert "logs/prepare/1/process" in state.failure.next_step


def test_a_jobspec_that_cannot_be_read_is_told_too(member: Member, tmp_path: Path) -> None:
    broken = {**environment(tmp_path, "bot-prepare-3", "true"), "TUNEYARD_JOB": '{"metadata": {"name": "bot"}, "spec": {"task": []}}'}
    assert run_attempt(broken, PlainProgress, member.pod) == 1
    state = member.state("bot-prepare-3")
    assert state is not None
    assert state.failure is not None
    assert "TUNEYARD_JOB" in state.failure.message


@pytest.mark.parametrize(("reason", "phase"), [("Cancelled", Phase.CANCELLED), ("Preempted", Phase.PREEMPTED)])
def test_an_attempt_stops_when_the_hub_asks(member: Member, tmp_path: Path, reason: str, phase: Phase) -> None:
    name = f"bot-prepare-{reason.lower()}"
    codes: list[int] = []
    attempt = threading.Thread(
        target=lambda: codes.append(run_attempt(environment(tmp_path, name, "sleep 600"), PlainProgress, member.pod))
    )
    attempt.start()
    wait_for("the command", lambda: (state := member.state(name)) is not None and state.phase is Phase.RUNNING)
    member.ask_to_stop(name, reason)
    attempt.join(60)
    assert codes == [3]
    state = member.state(name)
    assert state is not None
    assert state.phase is phase
    assert f"stopped as asked ({reason})" in state.message
