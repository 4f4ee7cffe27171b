"""Artifacts as links."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.tracking import Report
from tuneyard.tracking.report_page import render
from tuneyard.tracking.report_parts.artifacts import artifacts_of


def link_of(uri: str, output: str = "/runs/first", *, own_endpoint: bool = False) -> tuple[str, str]:
    (found,) = artifacts_of({"kind": "train", "artifacts": {"model": uri}}, output, own_endpoint=own_endpoint)
    return found.link, found.command


def test_what_lies_below_the_report_is_linked_relative_to_it() -> None:
    assert link_of("/runs/first/train/model") == ("./train/model", "")
    assert link_of("file:///runs/first/a b#c/model", "file:///runs/first") == ("./a%20b%23c/model", "")
    assert link_of("/runs/second/model") == ("file:///runs/second/model", "")
    assert link_of("/runs/first/model", "s3://bucket/first") == ("file:///runs/first/model", "")
    assert link_of("model") == ("", "")


def test_buckets_are_linked_to_their_consoles_where_there_is_one() -> None:
    console = "https://console.aws.amazon.com/s3/buckets/models?prefix=bot%2Ftrain%2Fmodel/"
    assert link_of("s3://models/bot/train/model") == (console, "aws s3 cp --recursive s3://models/bot/train/model .")
    assert link_of("s3://models/bot", own_endpoint=True) == ("", "aws s3 cp --recursive s3://models/bot .")
    assert link_of("gs://models/bot")[0] == "https://console.cloud.google.com/storage/browser/models/bot"
    assert link_of("hdfs://nn/models/a b") == ("", "hdfs dfs -get 'hdfs://nn/models/a b' .")
    assert link_of("az://container/model") == ("", "")


def test_the_rows_of_a_score_task_are_an_artifact() -> None:
    (rows,) = artifacts_of({"kind": "score", "output": "/runs/first/judge"}, "/runs/first", own_endpoint=False)
    assert (rows.name, rows.link) == ("rows", "./judge")


@given(st.text(min_size=1, max_size=60), st.sampled_from(["", "javascript:", "s3://", "gs://", "/", "file:///", "data:text/html,"]))
def test_no_link_runs_anything_or_leaves_its_console(text: str, start: str) -> None:
    link, _ = link_of(start + text)
    assert link == "" or link.startswith(
        ("./", "file:///", "https://console.aws.amazon.com/s3/buckets/", "https://console.cloud.google.com/storage/browser/")
    )
    if link.startswith("./"):
        assert not {"..", ""} & set(unquote(link)[2:].split("/")[:-1]), link


@pytest.mark.parametrize("uri", ['s3://b/"><script>alert(1)</script>', "s3://b/x' onclick=alert(1)", "/runs/\u202eevil"])
def test_a_name_does_not_leave_its_link(uri: str) -> None:
    class Links(HTMLParser):
        found: list[dict[str, Any]]

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag in ("a", "script"):
                self.found.append({"tag": tag, **dict(attrs)})

    links = Links()
    links.found = []
    links.feed(render(Report(job="j", status="succeeded", output="/runs", tasks={"t": {"kind": "train", "artifacts": {uri: uri}}})))
    (link,) = links.found
    assert set(link) == {"tag", "href", "rel"}
