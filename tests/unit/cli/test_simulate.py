"""`tuneyard simulate`, as a user runs it."""

from __future__ import annotations

import gzip
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml

from tuneyard.cli import main
from tuneyard.cli.simulate.clusters import read_clusters
from tuneyard.cli.simulate.text import spark
from tuneyard.cli.simulate.trace import read_trace

JOBS = """\
submit_s,duration_s,gpus,team,priority
50,100,8,maps,
60,50,8,search,high
70,10,8,maps,normal
"""
CLUSTERS = """\
clusters:
- {name: east, skus: [{name: a100-80gb, nodes: 1, gpusPerNode: 8}]}
"""
MANIFESTS = """\
apiVersion: tuneyard.dev/v1alpha1
kind: Cluster
metadata: {name: east}
spec:
  storage: [s3://models/]
  skus: [{name: a100-80gb, nodes: 1, gpusPerNode: 8}, {name: cpu, nodes: 2, gpusPerNode: 4}]
---
apiVersion: tuneyard.dev/v1alpha1
kind: Team
metadata: {name: maps}
spec: {quota: {a100-80gb: 8}}
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "clusters.yaml").write_text(CLUSTERS)
    return ["--trace", str(tmp_path / "jobs.csv"), "--clusters", str(tmp_path / "clusters.yaml")]


def test_json_of_one_policy(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *files, "--policy", "fifo-first-fit", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["policy"] == "fifo-first-fit"
    assert (found["jobs"], found["makespan_s"], found["p50_wait_s"], found["gpu_utilisation"]) == (3, 160, 90, 1)
    assert (found["mean_jct_s"], found["lost_gpu_hours"]) == (pytest.approx((100 + 140 + 140) / 3), 0)
    assert [team["team"] for team in found["teams"]] == ["maps", "search"]
    assert found["jain"] == found["fairness"]
    assert (found["most_preemptions_of_one"], found["largest_gangs_longest_wait_s"]) == (0, found["longest_wait_s"])


def test_policies_are_compared_and_drawn(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    policies = ["--policy", "best-effort-fifo", "--policy", "tuneyard"]
    assert main(["simulate", *files, *policies, "--noise", "0", "--chart", str(page)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["policy", "best-effort-fifo", "tuneyard"]
    assert "tuneyard: teams with a job that waited longer than any under best-effort-fifo: none" in lines
    html = page.read_text()
    assert html.count("<svg") == 4
    for drawing in html.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + drawing.partition("</svg>")[0] + "</svg>")
    assert "http:" not in html
    assert "https:" not in html


def test_the_same_seed_gives_the_same(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    failing = ["--node-failure-days", "0.002", "--node-down-minutes", "1", "--restart-seconds", "5", "-o", "json"]
    answers = []
    for seed in ("1", "1", "2"):
        assert main(["simulate", *files, *failing, "--seed", seed]) == 0
        found = json.loads(capsys.readouterr().out)
        answers.append({key: value for key, value in found.items() if key != "seconds_per_cycle"})
    assert answers[0] == answers[1]
    assert answers[0] != answers[2]


def test_manifests_and_a_gzipped_trace_of_the_other_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, clusters = tmp_path / "jobs.csv.gz", tmp_path / "clusters.yaml"
    trace.write_bytes(
        gzip.compress(b"timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,a\n2017-10-09 07:01:05,5,2,10,b\n")
    )
    clusters.write_text(MANIFESTS)
    assert [(job.submit_s, job.duration_s, job.gpus, job.team) for job in read_trace(trace)] == [(0, 5, 2, "b"), (50, 66, 1, "a")]
    (member,), (team,) = read_clusters(clusters)
    assert (member.near, [node.gpus for node in member.nodes]) == (("s3://models/",), [8, 4, 4])
    assert (team.name, team.quota) == ("maps", {"a100-80gb": 8})
    assert main(["simulate", "--trace", str(trace), "--clusters", str(clusters), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["makespan_s"] == 116


def test_a_list_as_kubectl_prints_it(tmp_path: Path) -> None:
    added = {"uid": "u", "creationTimestamp": "2026-11-21T12:00:00Z", "managedFields": [{}], "resourceVersion": "7"}
    items = [{**each, "metadata": {**each["metadata"], **added}, "status": {}} for each in yaml.safe_load_all(MANIFESTS)]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    plain = tmp_path / "plain.yaml"
    plain.write_text(MANIFESTS)
    assert read_clusters(file) == read_clusters(plain)


def test_a_quota_goes_by_any_name_of_a_kind_and_one_that_no_cluster_has_is_told(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    clusters = "clusters:\n- {name: east, skus: [{name: A100, nodes: 1, gpusPerNode: 8}]}\nteams:\n"
    file = Path(files[3])
    file.write_text(clusters + "- {name: a, cohort: c, quota: {a100: 8, l40z: 4}}\n- {name: b}\n")
    _, teams = read_clusters(file)
    assert teams[0].quota == {"a100-80gb": 8, "l40z": 4}
    assert main(["simulate", *files]) == 0
    assert "note: the quota of team a names l40z, which no cluster has" in capsys.readouterr().err


def test_every_bad_row_is_told_with_its_line_and_column(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    trace = Path(files[1])
    trace.write_text(JOBS + "x,1,1,a,low\n1,0,1,a,low\n1,1,1.5,a,low\n1,1,1,,low\n1,1,1,a,hihg\n1,1\n1,1,1e13,a,low\n")
    assert main(["simulate", *files]) == 2
    assert capsys.readouterr().err.splitlines()[:7] == [
        f"error: {trace}:5: submit_s: expected a number; found 'x'",
        f"{trace}:6: duration_s: must be above 0; found 0",
        f"{trace}:7: gpus: expected a whole number of at least 1; found '1.5'",
        f"{trace}:8: team: is empty",
        f"{trace}:9: priority: 'hihg' is none of: low, normal, high, urgent (did you mean high?)",
        f"{trace}:10: has 2 cells under a header of 5",
        f"{trace}:11: gpus: is beyond 1,000,000,000,000; found 1e13",
    ]


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("submit_s,duration_s,gpu,team", "the header has no column gpus (is it gpu?)"),
        ("timestamp,duration,num_gpus", "the header has no column cluster"),
        ("submit_s,duration_s,gpus,team,prioriti", "unknown column prioriti (did you mean priority?)"),
        ("submit_s,duration_s,gpus,team,gpus", "the header has two columns gpus"),
    ],
)
def test_a_header_that_lacks_a_column(header: str, says: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files[1]).write_text(header + "\n")
    assert main(["simulate", *files]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {files[1]}:1: {says}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "clusters:\n- {name: east, skus: [{name: a, node: 1, gpusPerNode: 8}]}\n",
            ":2:33: clusters[0].skus[0].node: unknown field (did you mean nodes?)",
        ),
        ("clusters: []\n", ":1:1: clusters: must not be empty"),
        ("clusters:\n- {name: east, skus: [{name: a, nodes: 0, gpusPerNode: 8}]}\n", ": none of its clusters has a GPU"),
        (CLUSTERS + CLUSTERS.splitlines()[1] + "\n", ": two clusters are named east"),
        (MANIFESTS.partition("---")[2], ": holds no Cluster"),
    ],
)
def test_clusters_that_are_wrong(text: str, says: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files[3]).write_text(text)
    assert main(["simulate", *files]) == 2
    assert f"{files[3]}{says}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--policy", "tuneyrad"], "--policy tuneyrad: no such policy (did you mean tuneyard?)"),
        (["--until", "soon"], "--until 'soon' is not a duration"),
        (["--chart", "/nowhere/at/all.html"], "--chart /nowhere/at/all.html: there is no folder /nowhere/at"),
        (["--noise", "-1"], "--noise"),
        (["--noise", "inf"], "not a finite number"),
    ],
)
def test_options_that_are_wrong(options: list[str], says: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *files, *options]) == 2
    assert says in capsys.readouterr().err


def test_a_missing_trace(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--trace", files[1].replace("jobs", "job"), *files[2:]]) == 2
    assert f"did you mean {files[1]}?" in capsys.readouterr().err


def test_a_job_that_no_cluster_could_run(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files[1]).write_text(JOBS + "1,1,9,maps,low\n")
    assert main(["simulate", *files]) == 0
    assert "can never run: " in capsys.readouterr().out


def test_a_spark_line() -> None:
    assert spark([0, 1, 4, 8]) == " ▁▄█"
    assert spark([0, 0]) == "  "
    assert spark([0.5, 1], most=2) == "▂▄"
