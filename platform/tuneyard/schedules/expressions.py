"""Expressions in the texts of a Schedule: `{{ run.date - 1d | %Y/%m/%d }}`. A small grammar, without code, loops or other variables.

    expression := ( "run.date" | "run.time" | "run.name" | a quoted text ) shift* [ "|" format ]
    shift      := ( "+" | "-" ) number unit

Units of run.date: d, w, mo, y; run.time has h, m and s too. Days, weeks, months and years move the date, and hours, minutes and seconds are
elapsed time. A month that is too short ends on its last day. Formats are those of strftime, as Airflow, dbt and Argo
Workflows take them, without those that depend on the language of the machine.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

OPEN, CLOSE = "{{", "}}"
_TERM = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)\s*")
_SHIFT = re.compile(r"([+-])\s*([0-9]{1,5})\s*([A-Za-z]+)\s*")
_QUOTED = re.compile(r"\s*(\"[^\"]*\"|'[^']*')\s*\}\}")
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_OF_DATE = ("Y", "m", "d", "y", "j", "G", "V", "u", "%")
_OF_TIME = (*_OF_DATE, "H", "M", "S", "z")
_CALENDAR = ("d", "w", "mo", "y")
_ELAPSED_S = {"h": 3600, "m": 60, "s": 1}
_LONGEST_FORMAT = 100
_SHOWN = 60
KNOWN = (
    "known are {{ run.date }}, {{ run.date - 1d }}, {{ run.date | %Y/%m/%d }}, {{ run.time }}, {{ run.name }}, "
    'and {{ "{{" }} for the braces themselves'
)


class BadExpression(ValueError):
    """An expression that cannot be understood, or has no value."""


@dataclass(frozen=True)
class Moment:
    """What expressions know of a run: its name and its due time. `zone`: the Schedule's time zone."""

    name: str
    due: datetime
    zone: str

    @property
    def local(self) -> datetime:
        return self.due.astimezone(ZoneInfo(self.zone))


Value = Callable[[Moment], str]


def render(text: str, moment: Moment) -> str:
    """`text` with the values of its expressions. Raises BadExpression. The rest of the text stays as it is."""
    return "".join(part if isinstance(part, str) else part(moment) for part in _parts(text))


def check(text: str) -> None:
    """Raises BadExpression for the first wrong expression in a text."""
    for _ in _parts(text):
        pass


def has_expression(text: str) -> bool:
    return OPEN in text


def _parts(text: str) -> Iterator[str | Value]:
    place = 0
    while (begin := text.find(OPEN, place)) >= 0:
        yield text[place:begin]
        end, inner = _inner(text, begin + len(OPEN))
        yield _value(inner)
        place = end
    yield text[place:]


def _inner(text: str, begin: int) -> tuple[int, str]:
    """The place after an expression, and the text between its braces. Braces inside quotes do not end it."""
    quoted = _QUOTED.match(text, begin)
    if quoted is not None:
        return quoted.end(), quoted[1]
    end = text.find(CLOSE, begin)
    if end < 0:
        raise BadExpression(f"{_shown(text[begin - 2 :])} has no closing braces; {KNOWN}")
    return end + len(CLOSE), text[begin:end].strip()


def _value(inner: str) -> Value:
    if inner[:1] in ("'", '"') and inner[-1:] == inner[:1] and len(inner) > 1:
        literal = inner[1:-1]
        return lambda _moment: literal
    left, pipe, format = inner.partition("|")
    term = _TERM.match(left)
    name = term[1] if term is not None else ""
    if name not in ("run.date", "run.time", "run.name"):
        raise BadExpression(f"{{{{ {_shown(inner)} }}}} is not an expression; {KNOWN}")
    assert term is not None
    shifts = _shifts(left[term.end() :], name, inner)
    if name == "run.name":
        if shifts or pipe:
            raise BadExpression(f"{{{{ {_shown(inner)} }}}}: run.name has neither arithmetic nor a format")
        return lambda moment: moment.name
    pattern = _format(format.strip(), name, inner) if pipe else ""
    return (lambda moment: _date(moment, shifts, pattern)) if name == "run.date" else (lambda moment: _time(moment, shifts, pattern))


def _shifts(rest: str, name: str, inner: str) -> tuple[tuple[int, str], ...]:
    units = _CALENDAR if name == "run.date" else (*_CALENDAR, *_ELAPSED_S)
    found, place = [], 0
    while place < len(rest):
        shift = _SHIFT.match(rest, place)
        if shift is None:
            raise BadExpression(f"{{{{ {_shown(inner)} }}}}: {_shown(rest[place:])} is no arithmetic; write it like run.date - 1d")
        if shift[3] not in units:
            hint = "; months are mo" if shift[3] == "m" else ""
            raise BadExpression(f"{{{{ {_shown(inner)} }}}}: {shift[3]!r} is no unit of {name}, which has {', '.join(units)}{hint}")
        found.append((int(shift[1] + shift[2]), shift[3]))
        place = shift.end()
    return tuple(found)


def _format(pattern: str, name: str, inner: str) -> str:
    known = _OF_DATE if name == "run.date" else _OF_TIME
    if not pattern or len(pattern) > _LONGEST_FORMAT or "%" not in pattern:
        raise BadExpression(f"{{{{ {_shown(inner)} }}}}: the format after | is written like %Y/%m/%d")
    for directive in _DIRECTIVE.findall(pattern):
        if directive not in known:
            raise BadExpression(
                f"{{{{ {_shown(inner)} }}}}: %{directive} is not a format of {name}: {', '.join('%' + each for each in known)}"
            )
    return pattern


def _date(moment: Moment, shifts: tuple[tuple[int, str], ...], pattern: str) -> str:
    day = moment.local.date()
    for number, unit in shifts:
        day = _moved(day, number, unit)
    return _written(datetime.combine(day, datetime.min.time(), UTC), pattern or "%Y-%m-%d")


def _time(moment: Moment, shifts: tuple[tuple[int, str], ...], pattern: str) -> str:
    local = moment.local
    for number, unit in shifts:
        if unit in _ELAPSED_S:
            moved = _later(local.astimezone(UTC), timedelta(seconds=number * _ELAPSED_S[unit]))
        else:  # a time that is skipped when clocks change becomes the time that they show then
            moved = datetime.combine(_moved(local.date(), number, unit), local.time(), local.tzinfo).astimezone(UTC)
        local = moved.astimezone(ZoneInfo(moment.zone))
    return _written(local, pattern) if pattern else local.isoformat(timespec="seconds")


def _moved(day: date, number: int, unit: str) -> date:
    if unit in ("d", "w"):
        return _later(datetime.combine(day, datetime.min.time()), timedelta(days=number * (7 if unit == "w" else 1))).date()
    months = day.year * 12 + day.month - 1 + number * (12 if unit == "y" else 1)
    year, month = divmod(months, 12)
    if not 1 <= year <= 9998:
        raise BadExpression(f"run.date {number:+}{unit} is no date of the years 1 to 9998")
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def _later(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:
        raise BadExpression("the arithmetic leaves the years 1 to 9999") from None


def _written(moment: datetime, pattern: str) -> str:
    year, week, weekday = moment.isocalendar()
    values: Mapping[str, str] = {
        "Y": f"{moment.year:04}",
        "y": f"{moment.year % 100:02}",
        "m": f"{moment.month:02}",
        "d": f"{moment.day:02}",
        "j": f"{moment.timetuple().tm_yday:03}",
        "H": f"{moment.hour:02}",
        "M": f"{moment.minute:02}",
        "S": f"{moment.second:02}",
        "z": moment.strftime("%z"),
        "G": f"{year:04}",
        "V": f"{week:02}",
        "u": str(weekday),
        "%": "%",
    }
    return _DIRECTIVE.sub(lambda found: values[found[1]], pattern)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
