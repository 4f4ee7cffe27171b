"""Control characters in what others have written: shown, and not obeyed."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.live import Live
from rich.text import Text
from tests.builders.hub_jobs import make_attempt, make_hub_job, make_running

from tuneyard.api import TuneyardError
from tuneyard.cli import entry, terminal
from tuneyard.cli.commands import COMMANDS
from tuneyard.cli.jobs.page import page
from tuneyard.cli.logs.printer import LogPrinter
from tuneyard.cli.output import table_lines
from tuneyard.cli.progress.live import LiveJob
from tuneyard.data.visible import visible

CLEAR = "\x1b[2J\x1b[H"
TITLE = "\x1b]0;owned\x07"


@pytest.mark.parametrize("text", ["one\ttwo\nthree", "Grüße, 你好 🙂", "50 % of a\\u001b"])
def test_words_stay_as_they_are(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (CLEAR, r"\u001b[2J\u001b[H"),
        (TITLE, r"\u001b]0;owned\u0007"),
        ("done\rfailed", r"done\u000dfailed"),
        ("\x9b2J", r"\u009b2J"),
        ("a\u202eb", r"a\u202eb"),
        ("\x7f", r"\u007f"),
    ],
)
def test_controls_are_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_json_of_a_guarded_command_reads_as_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.guarded():
        print(json.dumps({"message": CLEAR + "\x7f"}, ensure_ascii=False))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert json.loads(out) == {"message": CLEAR + "\x7f"}


def test_every_command_that_asks_the_hub_is_guarded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def talk(*_rest: object) -> int:
        print(f"out {CLEAR}", f"err {CLEAR}", file=sys.stderr)
        sys.stdout.writelines([CLEAR])
        entry._complain(CLEAR, CLEAR)
        return 0

    monkeypatch.setattr(entry, "_run", talk)
    asking = [command.name for command in COMMANDS if command.is_guarded]
    assert asking == ["submit", "status", "why", "wait", "logs", "cancel", "suspend", "resume", "clusters", "usage", "schedule", "history"]
    for name in asking:
        entry.main([name])
    assert "\x1b" not in "".join(capsys.readouterr())


def test_errors_of_any_command_quote_no_control(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise TuneyardError(f"data.jsonl: line 3 holds {CLEAR}", f"look at {TITLE}")

    monkeypatch.setattr(entry, "typer_app", lambda _command: fail())
    entry.main(["validate"])
    assert capsys.readouterr().err == "error: data.jsonl: line 3 holds \\u001b[2J\\u001b[H\nnext: look at \\u001b]0;owned\\u0007\n"


def test_a_table_has_one_line_per_row_whatever_its_cells_hold() -> None:
    lines = table_lines(["name", "message"], [{"name": "a", "message": f"{CLEAR}lost\nb     Succeeded"}])
    assert len(lines) == 2
    assert "\x1b" not in lines[1]


def test_log_lines_and_their_speakers() -> None:
    stream = io.StringIO()
    LogPrinter(stream, prefixed=True, coloured=False)(f"train {TITLE}", f"{CLEAR}step 1\n")
    assert stream.getvalue() == "[train \\u001b]0;owned\\u0007] \\u001b[2J\\u001b[Hstep 1\n"


RED, PLAIN = "\x1b[1;31m", "\x1b[0m"


@pytest.mark.parametrize(
    ("line", "on_a_terminal", "in_a_pipe"),
    [
        (f"{RED}loss{PLAIN} 1.5", f"{RED}loss{PLAIN} 1.5{PLAIN}", "loss 1.5"),
        ("\x1b[38;5;8mgrey", f"\x1b[38;5;8mgrey{PLAIN}", "grey"),
        ("\x1b[38:2::1:2:3mrgb\x1b[m", f"\x1b[38:2::1:2:3mrgb\x1b[m{PLAIN}", "rgb"),
        (f"{CLEAR}{RED}x", rf"\u001b[2J\u001b[H{RED}x{PLAIN}", r"\u001b[2J\u001b[Hx"),
        (f"{TITLE}x", r"\u001b]0;owned\u0007x", r"\u001b]0;owned\u0007x"),
        ("\x1b\x1b[31m[2J", rf"\u001b\x1b[31m[2J{PLAIN}", r"\u001b[2J"),
        ("\x1b[?25l\x1b[31", r"\u001b[?25l\u001b[31", r"\u001b[?25l\u001b[31"),
        ("\x9b31m", r"\u009b31m", r"\u009b31m"),
        ("plain", "plain", "plain"),
    ],
)
def test_logs_keep_their_colours_on_a_terminal_and_nothing_else(line: str, on_a_terminal: str, in_a_pipe: str) -> None:
    for coloured, shown in ((True, on_a_terminal), (False, in_a_pipe)):
        stream = io.StringIO()
        LogPrinter(stream, prefixed=False, coloured=coloured)("train rank 0", f"{line}\n")
        assert stream.getvalue() == f"{shown}\n".replace("\\x1b", "\x1b")


@given(st.text(alphabet=st.sampled_from("\x1b[]0;31mKJH?\x07\x9b\x00 ab\u202e"), max_size=30))
def test_whatever_is_logged_a_terminal_is_told_of_letters_alone(text: str) -> None:
    left = re.sub("\x1b\\[[0-9;:]*m", "", terminal.with_colours(text))
    assert left == visible(left)
    assert "\x1b" not in terminal.without_colours(text)


def test_a_live_view_draws_and_obeys_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich's own sequences reach the terminal, those of a job's message do not."""
    terminal_of_user = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal_of_user)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    status = make_running() | {"message": f"{TITLE}train runs", "attempts": [make_attempt(1)]}
    with terminal.guarded():
        console = terminal.console(stderr=True)
        with LiveJob(console) as live:
            live(make_hub_job(status))
        with Live(console=console) as plain:
            plain.update(Text(CLEAR), refresh=True)
    shown = terminal_of_user.getvalue()
    assert "\x1b[" in shown, "it is a terminal"
    assert TITLE not in shown
    assert CLEAR not in shown
    assert r"\u001b]0;owned" in shown


def test_a_page_of_a_hostile_job_is_guarded_by_the_stream(capsys: pytest.CaptureFixture[str]) -> None:
    job = make_hub_job(
        make_running() | {"message": CLEAR, "attempts": [make_attempt(1, logTail=TITLE, failure="UserError", phase="Failed")]}
    )
    with terminal.guarded():
        print(page(job, job.created_at))
    assert "\x1b" not in capsys.readouterr().out
