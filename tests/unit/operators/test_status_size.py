"""A status stays one that an API server takes, however long its job lives and whatever the job's processes say."""

from __future__ import annotations

from tests.builders.attempts import attempt, status

from tuneyard.api import Condition, TaskStatus
from tuneyard.api.status import MOST_STAGES, AttemptSummary, StageTime, StepLoss
from tuneyard_operators.hub.lifecycle import copied
from tuneyard_operators.hub.status_size import BUDGET_BYTES, MOST_ATTEMPTS, fitted, shortened, size_of

LONG = "x" * 700_000
OVER = {"ended_at": "2026-11-21T12:00:00Z", "cleaned": True, "failure": "Network"}


def test_a_text_says_where_it_was_cut() -> None:
    assert shortened("short") == "short"
    assert shortened(LONG, 20) == "x" * 12 + " … (cut)"


def test_whatever_a_job_says_fits() -> None:
    huge = attempt().placement
    assert huge is not None
    huge = huge.model_copy(update={"nodes": {f"node-{n:04}.example.com": 8 for n in range(1000)}})
    told = [attempt(n, message=LONG, next_step=LONG, log_tail=LONG, placement=huge, **OVER) for n in range(1, 500)]
    metrics = {str(n): "🦆" * 200 for n in range(5000)} | {"nested": {"a": [1] * 100_000}}
    tasks = [
        TaskStatus.model_construct(name=f"t{n}", message=LONG, metrics=metrics, artifacts=["s3://b/" + "y" * 900] * 900) for n in range(64)
    ]
    conditions = [Condition.model_construct(type="Valid", status="False", reason="", message=LONG)]
    found = fitted(status(*told, attempt(500), tasks=tasks, message=LONG, conditions=conditions))
    assert size_of(found) < 2 * BUDGET_BYTES
    assert [own.number for own in found.attempts][-1] == 500
    assert len(found.attempts) == MOST_ATTEMPTS
    assert found.attempts[-1].placement.nodes == {"n1": 2}  # type: ignore[union-attr]
    assert found.attempts[-2].log_tail, "the last attempts are told of at length"
    assert huge.nodes, "what is shared is left alone"


def test_a_plan_keeps_its_parts_and_no_plan_or_curve_outgrows_a_status() -> None:
    plan = {"zero": 2, "memory": {"weights_gb": 1.5}, "speed": {"mfu": 0.4, "terms": {"matmul_s": 1.0}}}
    wild = {str(n): {"x" * n: LONG, "deep": {str(n): {"deeper": {"deepest": [LONG]}} for n in range(500)}} for n in range(500)}
    curve = AttemptSummary.model_construct(steps=1, losses=[StepLoss(step=n, loss=0.5) for n in range(90_000)])
    found = fitted(status(attempt(1, plan=plan, **OVER), attempt(2, plan=wild, summary=curve), attempt(3, plan=wild, summary=curve)))

    assert size_of(found) <= BUDGET_BYTES
    assert found.attempts[0].plan["memory"] == {"weights_gb": 1.5}
    assert [each.step for each in found.attempts[2].summary.losses][-1] == 89_999  # type: ignore[union-attr]
    ordinary = fitted(status(attempt(1, plan=plan), attempt(2, plan=plan), attempt(3, plan=plan), attempt(4, plan=plan)))
    assert [each.plan for each in ordinary.attempts] == [{}, plan, plan, plan]


def test_trials_of_a_search_stay_and_outgrow_no_status() -> None:
    trial = {"number": 3, "point": {"batch.micro": 4, "zero": 2}, "ratio": 1.2, "predicted": 0.9}
    learned = {"settings": {"gpus": 8, "framework": "tuneyard"}, "trials": [{"number": 3, "status": "succeeded", "settings": {"tp": 2}}]}
    metrics = {"gain": 0.2, "trials": [trial], "best": {"batch.micro": 4}, "learned": learned}
    kept = fitted(status(attempt(1), tasks=[TaskStatus(name="search", metrics=metrics)])).tasks[0].metrics
    assert kept == metrics
    odd = {"trials": 5, "best": "a text"}
    assert fitted(status(attempt(1), tasks=[TaskStatus(name="score", metrics=odd)])).tasks[0].metrics == odd
    wild = {"trials": [trial | {"failure": LONG, "point": {str(n): LONG for n in range(500)}}] * 5_000 + [LONG], "best": {"a": [LONG]}}
    wild["learned"] = {"settings": {str(n): LONG for n in range(500)}, "trials": wild["trials"]}
    tasks = [TaskStatus.model_construct(name=f"t{n}", metrics=wild) for n in range(64)]
    found = fitted(status(attempt(1), tasks=tasks))
    assert size_of(found) <= BUDGET_BYTES
    assert fitted(copied(found)) == found


def test_cutting_twice_is_cutting_once() -> None:
    found = fitted(status(*[attempt(n, message=LONG, log_tail=LONG, **OVER) for n in range(1, 300)], message=LONG))
    assert fitted(copied(found)) == found


def test_what_fits_is_not_changed() -> None:
    sound = status(
        attempt(1, message="m", log_tail="l", **OVER), attempt(2), message="runs", tasks=[TaskStatus(name="one", metrics={"a": 1})]
    )
    assert fitted(copied(sound)) == sound


def test_attempts_of_which_anything_is_left_are_never_forgotten() -> None:
    left = [attempt(n, **{**OVER, "cleaned": False}) for n in range(1, 400)]
    assert len(fitted(status(*left)).attempts) == 399


def test_stages_of_older_attempts_go_before_anything_breaks() -> None:
    told = [StageTime(name="s" * 500, began_at="2026-11-26T12:00:00.000Z", ended_at="2026-11-26T12:00:01.000Z")] * 50
    few = fitted(status(*[attempt(n, stages=told, **OVER) for n in range(1, 5)]))
    assert [(len(own.stages), len(own.stages[0].name)) for own in few.attempts] == [(MOST_STAGES, 100)] * 4
    many = fitted(status(*[attempt(n, stages=told, **OVER) for n in range(1, 200)]))
    assert size_of(many) <= BUDGET_BYTES
    assert [len(own.stages) for own in many.attempts[-4:]] == [0, *[MOST_STAGES] * 3]
