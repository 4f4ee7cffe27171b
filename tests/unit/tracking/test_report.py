"""report.json and report.html, from the events of a job."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.builders.reports import finished_report, make_job, score_events, tell, train_events, train_result, tune_result

from tuneyard.storage import open_store
from tuneyard.tracking import Event, Recorder, Report, Step, TaskEvent, Warned, write_report
from tuneyard.tracking.report_page import render
from tuneyard.tracking.series import MOST_POINTS, TaskSeries


class Page(HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def test_a_finished_job_has_what_others_read(tmp_path: Path) -> None:
    write_report(open_store(str(tmp_path)), finished_report())

    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["job"], report["status"]) == ("support-bot", "succeeded")
    assert list(report["tasks"]) == ["base", "train", "judge"]
    train = report["tasks"]["train"]
    needed = {"losses", "tokens_per_s", "mfu", "flops_per_step", "peak_memory_gb", "planned_memory_gb", "steps", "world_size", "wall_s"}
    assert needed | {"artifacts"} <= set(train)
    assert len(train["losses"]) == 120
    assert {"rows", "errors", "metrics", "output_tokens_per_s", "mfu", "output"} <= set(report["tasks"]["judge"])


def test_the_page_shows_key_figures_and_compares_score_tasks() -> None:
    page = Page(render(finished_report()))

    for shown in (
        "1.175",
        "41.8%",
        "54.2 GB",
        "410 ms",
        "+0.235 better",
        "−6.72 better",
        "Where the time went",
        "Waiting for data",
    ):
        assert shown in page.text, shown
    assert len([tag for tag, _ in page.tags if tag == "svg"]) == 6


def test_a_mixture_of_experts_shows_its_router_and_its_load() -> None:
    recorder = Recorder(make_job())
    tell(recorder, [replace(e, router_loss=1.5, busiest_expert=2.25) if isinstance(e, Step) else e for e in train_events(5)])
    report = recorder.report()
    report.tasks["train"]["details"] = {"experts": {"load": [[0.5, 1.5], [1.0, 1.0]], "busiest": [1.25]}}

    page = Page(render(report))

    for shown in ("Router loss, before its weight", "Busiest expert, times the mean load", "Load of experts in the last steps"):
        assert shown in page.text, shown
    assert "layer 1 · expert 2: 1.50x" in page.text
    assert "Busiest expert" not in Page(render(finished_report())).text


def test_preference_pairs_show_their_rewards() -> None:
    recorder = Recorder(make_job())
    rewards = {"rewards/margin": 0.25, "rewards/accuracy": 0.75}
    tell(recorder, [replace(e, figures=rewards) if isinstance(e, Step) else e for e in train_events(5)])

    text = Page(render(recorder.report())).text

    assert "Reward of the chosen answer less the rejected one's" in text
    assert "Pairs with the chosen answer ahead" in text
    assert recorder.report().tasks["train"]["series"]["rewards/margin"] == [0.25] * 5
    assert "chosen answer ahead" not in Page(render(finished_report())).text


def test_streamed_mixtures_show_their_rows_and_what_making_them_took() -> None:
    report = finished_report()
    report.tasks["train"]["details"] = {
        "mixture": {
            "parts": ["chats", "manuals"],
            "shares": [0.75, 0.25],
            "rows_by_step": [[6, 2], [5, 3]],
            "tokens_by_step": [[70, 30], [60, 40]],
        },
        "stream": {"seconds": {"storage": 1.0, "tokenising": 30.0}, "waited_s": 2.0},
    }

    page = Page(render(report))

    for shown in (
        "Rows and tokens by part of the mixture",
        "11 rows",
        "of all tokens",
        "What making rows took",
        "rank 0 waited",
        "tokenising",
    ):
        assert shown in page.text, shown
    assert "Rows and tokens by part" not in Page(render(finished_report())).text


def test_score_tasks_on_different_data_stand_side_by_side_without_a_change() -> None:
    report = finished_report()
    data = [{"source": "a.jsonl", "reference": "one"}, {"source": "a.jsonl", "reference": "list"}]
    tasks = [{"name": name, "score": {"data": each}} for name, each in zip(("base", "judge"), data, strict=True)]
    html = render(replace(report, spec={"spec": {"tasks": tasks}}))
    assert "Side by side, on different data" in html
    assert " better" not in Page(html.partition("<body")[2]).text
    assert "<h2>Comparison</h2>" not in html


def test_prompts_of_different_forms_are_named_beside_the_comparison() -> None:
    report = finished_report()
    assert "prompts differ" not in Page(render(report)).text

    report.tasks["base"]["details"], report.tasks["judge"]["details"] = {"prompts": "chats"}, {"prompts": "plain"}

    assert "prompts differ in form: as chats in base, as plain text in judge" in Page(render(report)).text


def test_metrics_have_titles_and_intervals_and_unknown_ones_no_direction() -> None:
    report = finished_report()
    report.tasks["judge"] |= {"intervals": {"exact_match": [0.4012, 0.4938]}}
    for name in ("base", "judge"):
        report.tasks[name]["metrics"]["of_another_version"] = float(len(name))
    html = render(report)

    assert '<td>exact match</td><td class="number">0.447</td><td class="number">0.4012 – 0.4938</td>' in html
    unknown = html[html.index("<td>of_another_version</td>") :].partition("</tr>")[0]
    assert "+1" in unknown
    assert "better" not in unknown
    assert "worse" not in unknown


def test_a_better_mean_does_not_hide_outputs_that_say_nothing() -> None:
    report = finished_report()
    report.tasks["base"] |= {"empty": 0, "looping": 3, "cut_off": 0}
    sample = {"row": 7, "typical": True, "prompt": "p", "output": "", "reference": "r", "error": None}
    report.tasks["judge"] |= {"empty": 240, "looping": 0, "cut_off": 60, "samples": [sample, {**sample, "row": 0, "typical": False}]}
    page = Page(render(report))
    for shown in (
        "empty outputs",
        "80.0% of all",
        "share of empty outputs",
        "outputs that were cut off",
        "20.0% of all",
        "worse",
        "a typical answer, row 7: p",
        "row 0: p",
    ):
        assert shown in page.text, shown
    assert "share of" not in Page(render(finished_report())).text


def test_a_search_shows_its_winner_its_trials_and_what_each_setting_did() -> None:
    html = render(Report(job="bot", status="succeeded", tasks={"search": tune_result()}))
    page = Page(html)
    for shown in (
        "+84.6%",
        "pairs: 1.88x, 1.85x, 1.65x",
        "data.pack true, batch.micro 4",
        "1 failed",
        "What each setting did",
        "OutOfMemory",
    ):
        assert shown in page.text, shown
    assert [tag for tag, _ in page.tags].count("svg") == 1
    assert "&lt;24 GB&gt;" in html
    rows = page.text.partition("measured\n")[2].splitlines()
    assert rows.index("1.87") < rows.index("1.84") < rows.index("0.90") < rows.index("OutOfMemory"), "the best comes first"


def test_a_search_that_has_found_nothing_says_so() -> None:
    nothing = tune_result() | {"gain": 0.0, "best": {}, "trials": [], "effects": [], "ratios": []}
    assert "the file's settings" in Page(render(Report(job="bot", status="succeeded", tasks={"search": nothing}))).text


def test_the_page_refers_to_nothing_outside() -> None:
    page = Page(render(finished_report()))

    assert [tag for tag, _ in page.tags if tag in ("script", "iframe", "object", "img")] == []
    assert [values for _, values in page.tags if "src" in values] == []
    assert {values["href"] for tag, values in page.tags if "href" in values and tag != "a"} == {"data:,"}
    assert {values["rel"] for tag, values in page.tags if tag == "a"} == {"noreferrer"}


@pytest.mark.parametrize("attack", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "</style><script>"])
def test_what_people_wrote_is_text(attack: str) -> None:
    recorder = Recorder(make_job(setup=[attack]), output=attack)
    tell(recorder, score_events("base", {attack: 0.5}, prompt=attack))
    recorder(Warned(task="base", message=attack))
    recorder(TaskEvent(task="train", state="started", kind="train"))
    recorder(TaskEvent(task="train", state="failed", kind="train", failure="UserError", message=attack))

    page = Page(render(recorder.close("failed", attack)))

    assert [tag for tag, _ in page.tags if tag in ("script", "img")] == []
    assert page.text.count(attack) >= 5


@pytest.mark.parametrize(
    ("peak_from", "said"),
    [
        ("measured", "of the measured peak"),
        ("doubtful", "of a peak that was measured beside other work, and may be too low"),
        ("given", "of a peak that was given by hand"),
        ("datasheet", ""),
    ],
)
def test_mfu_says_which_peak_it_is_of(peak_from: str, said: str) -> None:
    recorder = Recorder(make_job())
    tell(recorder, train_events(3))
    recorder(TaskEvent(task="train", state="succeeded", kind="train", result=train_result() | {"peak_from": peak_from}))

    text = Page(render(recorder.close("succeeded"))).text

    assert "41.8" in text
    assert (said in text) if said else ("peak that" not in text and "measured peak" not in text)


def test_a_report_can_be_written_at_any_moment(tmp_path: Path) -> None:
    recorder = Recorder(make_job())
    statuses = []
    for event in train_events(3):
        recorder(event)
        write_report(tmp_path, recorder.report())
        statuses.append(json.loads((tmp_path / "report.json").read_text())["tasks"]["train"]["status"])

    assert set(statuses) == {"running"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


def test_a_job_without_any_event_has_a_page() -> None:
    assert "pending" in Page(render(Recorder(make_job()).report())).text


def test_numbers_that_json_lacks_become_null() -> None:
    report = Report(job="x", status="failed", tasks={"train": {"losses": [1.0, math.nan, math.inf], "path": Path("/x")}})

    assert json.loads(report.to_json())["tasks"]["train"] == {"losses": [1.0, None, None], "path": "/x"}
    render(Report(job="x", status="failed", tasks={"train": {"kind": "train", "status": "failed", "losses": [math.nan], "mfu": math.nan}}))


def test_a_report_comes_back_from_json() -> None:
    report = finished_report()

    assert Report.from_json(report.to_json()).to_json() == report.to_json()
    assert Report.from_json('{"job": "x", "status": "running", "from_the_future": 1}').job == "x"


def test_no_secret_is_in_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_environment_secret")
    recorder = Recorder(make_job(env=[{"name": "API_TOKEN", "value": "written-secret"}]), output="s3://key:uri-secret@bucket/x")
    recorder(TaskEvent(task="train", state="started", kind="train"))
    recorder(TaskEvent(task="train", state="failed", kind="train", message="401 for hf_environment_secret"))

    report = recorder.close("failed", "train failed: 401 for hf_environment_secret")

    assert "secret" not in report.to_json().replace("SECRET", "")
    assert "secret" not in render(report)


def test_a_resumed_run_keeps_the_curves_of_tasks_that_were_done() -> None:
    first = Recorder(make_job())
    tell(first, train_events(5))
    first(TaskEvent(task="train", state="succeeded", kind="train", result=train_result()))

    second = Recorder(make_job(), previous=first.close("stopped"))
    second(TaskEvent(task="train", state="skipped", kind="train", result=train_result()))

    train = second.report().tasks["train"]
    assert train["status"] == "succeeded"
    assert train["series"]["step"] == [1, 2, 3, 4, 5]


def test_a_resumed_run_that_is_killed_early_loses_no_curve() -> None:
    first = Recorder(make_job())
    tell(first, train_events(5))
    first(TaskEvent(task="train", state="succeeded", kind="train", result=train_result()))

    second = Recorder(make_job(), previous=first.close("stopped"))
    third = Recorder(make_job(), previous=second.report())
    third(TaskEvent(task="train", state="skipped", kind="train", result=train_result()))

    assert second.report().tasks["train"]["status"] == "pending"
    assert third.report().tasks["train"] == first.report().tasks["train"]


def test_a_new_attempt_starts_its_curves_again() -> None:
    recorder = Recorder(make_job())
    tell(recorder, train_events(5))
    recorder(TaskEvent(task="train", state="failed", kind="train", failure="OutOfMemory", message="no memory"))
    tell(recorder, train_events(3))

    train = recorder.report().tasks["train"]
    assert train["status"] == "running"
    assert train["series"]["step"] == [1, 2, 3]
    assert "failure" not in train


def test_a_long_run_keeps_a_bounded_series() -> None:
    series = TaskSeries()
    for step in range(1, 50_001):
        series.add(
            Step(task="t", step=step, of=50_000, loss=1.0, learning_rate=1.0, tokens=1, step_s=1.0, tokens_per_s=1.0, mfu=0.1, eta_s=0.0)
        )

    steps = series.to_dict()["series"]["step"]
    assert MOST_POINTS / 2 <= len(steps) <= MOST_POINTS
    assert len({b - a for a, b in itertools.pairwise(steps)}) == 1


def test_useless_outputs_stand_beside_each_figure_of_outputs_also_where_there_are_none() -> None:
    report = finished_report()
    report.tasks["base"] |= {"empty": 0, "looping": 0, "cut_off": 0}
    report.tasks["judge"] |= {"empty": 240, "looping": 0, "cut_off": 60}
    html = render(report)

    rows = {name: html[html.index(f"<td>{name}</td>") :].partition("</tr>")[0] for name in ("exact match", "ROUGE-L", "perplexity")}
    for name in ("exact match", "ROUGE-L"):
        assert "none of 300 empty, looping or cut off" in rows[name]
        assert "240 empty, 60 cut off of 300" in rows[name]
    assert "empty" not in rows["perplexity"], "it is computed from references"
    assert html.count("240 empty, 60 cut off of 300") == 4, "twice side by side, and twice in the task's own table"


def test_memory_is_compared_with_its_libraries_as_a_part_of_both() -> None:
    report = finished_report()
    memory = {"weights_gb": 0.02, "activations_gb": 0.02, "libraries_gb": 0.53}
    report.tasks["train"] |= {"peak_memory_gb": [0.66, 0.65], "libraries_gb": [0.59, 0.6], "planned_memory_gb": 0.57}
    report.tasks["train"]["plan"] = {"sku": "cpu", "workers": 2, "memory": memory}
    page = Page(render(report))
    assert "of one rank; planned 0.570 GB; libraries take 0.590 GB (planned 0.530 GB), the task 0.0700 GB (planned 0.0400 GB)" in page.text
    assert "rank 1 · libraries 0.600 GB" in page.text

    report.tasks["train"]["plan"]["sku"] = "h100-80gb"
    assert "libraries take" not in Page(render(report)).text, "they are in the host's memory"


def test_every_place_shows_one_wall_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 1000.0

    monkeypatch.setattr("tuneyard.tracking.recorder.time.monotonic", lambda: Clock.now)
    seen: list[Event] = []

    class Keeping:
        def record(self, event: Event) -> None:
            seen.append(event)

        def close(self, _status: str, _message: str) -> None:
            Clock.now += 60.0  # a tracker that hangs

    recorder = Recorder(make_job(), [Keeping()])
    recorder(TaskEvent(task="train", state="started", kind="train"))
    Clock.now += 75.0
    told = recorder(TaskEvent(task="train", state="succeeded", kind="train", result=train_result()))
    Clock.now += 5.0
    report = recorder.close("succeeded")

    assert isinstance(told, TaskEvent)
    assert told.result is not None
    assert (told.wall_s, told.result["wall_s"], seen[-1]) == (75.0, 75.0, told)
    assert (report.tasks["train"]["wall_s"], report.wall_s, recorder.report().wall_s) == (75.0, 80.0, 80.0)
    assert "1 min 15 s" in Page(render(report)).text
    resumed = Recorder(make_job(), previous=report)
    resumed(TaskEvent(task="train", state="skipped", kind="train", result=train_result()))
    assert resumed.report().tasks["train"]["wall_s"] == 75.0
