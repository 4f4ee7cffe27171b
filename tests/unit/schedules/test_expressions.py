"""Dates in texts: values, refusals, and texts that are none of the parser's business."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.schedules import BadExpression, Moment, expression_problems, rendered
from tuneyard.schedules.expressions import check, render

NIGHT = Moment("nightly-29735100", datetime(2026, 3, 1, 23, 30, tzinfo=UTC), "Europe/Amsterdam")  # 00:30 on 2 March there


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("s3://logs/date={{ run.date }}/x", "s3://logs/date=2026-03-02/x"),
        ("{{run.date-1d}}", "2026-03-01"),
        ("{{ run.date - 1d | %Y/%m/%d }}", "2026/03/01"),
        ("{{ run.date - 1mo | %Y-%m }}", "2026-02"),
        ("{{ run.date + 1mo - 1d }}", "2026-04-01"),
        ("{{ run.date - 2w | %G-W%V-%u }}", "2026-W08-1"),
        ("{{ run.date - 1y | %j of %y, 100%% }}", "061 of 25, 100%"),
        ("{{ run.time }}", "2026-03-02T00:30:00+01:00"),
        ("{{ run.time - 1h | %Y-%m-%dT%H }}", "2026-03-01T23"),
        ("{{ run.time + 90m | %H:%M:%S %z }}", "02:00:00 +0100"),
        ("{{ run.name }}", "nightly-29735100"),
        ('docker ps --format {{ "{{" }}.ID{{ "}}" }}', "docker ps --format {{.ID}}"),
        ("{{ run.date }} to {{ run.date + 6d }}", "2026-03-02 to 2026-03-08"),
        ("$X {not: one} }} %Y", "$X {not: one} }} %Y"),
        ("", ""),
    ],
)
def test_values(text: str, value: str) -> None:
    assert render(text, NIGHT) == value


def test_a_month_that_is_too_short_ends_on_its_last_day() -> None:
    assert render("{{ run.date - 1mo }}", Moment("x", datetime(2026, 3, 31, 12, tzinfo=UTC), "UTC")) == "2026-02-28"


def test_hours_pass_and_days_move_the_date_when_clocks_change() -> None:
    spring = Moment("x", datetime(2026, 3, 29, 10, tzinfo=UTC), "Europe/Amsterdam")  # noon, nine hours after the change
    assert render("{{ run.time - 1d | %H }} {{ run.time - 24h | %H }}", spring) == "12 11"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{ run.dat }}", "is not an expression; known are {{ run.date }}"),
        ("{{ ds }}", "is not an expression"),
        ("{{ }}", "is not an expression"),
        ("{{ run.date - 1h }}", "'h' is no unit of run.date"),
        ("{{ run.date - 1m }}", "months are mo"),
        ("{{ run.date - d }}", "is no arithmetic"),
        ("{{ run.date * 2 }}", "is no arithmetic"),
        ("{{ run.date | }}", "is written like %Y/%m/%d"),
        ("{{ run.date | %B }}", "%B is not a format of run.date"),
        ("{{ run.date | %H }}", "%H is not a format of run.date"),
        ("{{ run.date | %Y% }}", "% is not a format"),
        ("{{ run.name | %Y }}", "run.name has neither"),
        ("{{ run.date", "has no closing braces"),
        ("a {{ run.date }} b {{ c", "has no closing braces"),
        ("{{ ''.__class__.__mro__ }}", "is not an expression"),
        ("{{ run.date.__class__ }}", "is not an expression"),
        ("{{" * 30_000, "has no closing braces"),
        ("{{ run.date - 99999999d }}", "is no arithmetic"),
    ],
)
def test_refusals(text: str, reason: str) -> None:
    with pytest.raises(BadExpression) as refused:
        check(text)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("text", ["{{ run.date - 9999y }}", "{{ run.date + 9999y }}", "{{ run.time + 99999mo | %Y }}"])
def test_years_that_no_calendar_has_are_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        render(text, NIGHT)


@given(st.text())
def test_any_text_is_rendered_or_refused(text: str) -> None:
    try:
        value = render(text, NIGHT)
    except BadExpression:
        return
    assert value == text or "{{" in text


@given(begins=st.dates(date(1980, 1, 1), date(2200, 1, 1)), days=st.integers(-9999, 9999))
def test_arithmetic_of_days_is_that_of_dates(begins: date, days: int) -> None:
    moment = Moment("x", datetime.combine(begins, datetime.min.time(), UTC), "UTC")
    assert render(f"{{{{ run.date {days:+}d }}}}", moment) == (begins + timedelta(days=days)).isoformat()


def test_templates_in_other_languages_stay_as_they_are() -> None:
    spec = {"train": {"data": {"chatTemplate": "{{ messages[0].content }}", "source": "s3://x/{{ run.date }}"}}, "steps": 3}
    made = rendered(spec, NIGHT)
    assert made["train"]["data"] == {"chatTemplate": "{{ messages[0].content }}", "source": "s3://x/2026-03-02"}
    assert list(expression_problems(spec)) == []
    assert [path for path, _ in expression_problems({"a": ["x", "{{ b }}"]})] == [("a", 1)]
