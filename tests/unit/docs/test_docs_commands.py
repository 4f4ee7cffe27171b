"""Every command in README and docs is one that exists: verbs, options, targets and files, by the parsers that users meet."""

from __future__ import annotations

import re
from functools import cache

import pytest
from tests.unit.docs.checking import block_complaints, complaints, own_path_exists
from tests.unit.docs.commands import Line, lines_of
from tests.unit.docs.markdown import ROOT, Page, manual, read_page

from tuneyard.cli.commands import COMMANDS
from tuneyard.cli.kubectl import VERBS

every_page = pytest.mark.parametrize("page", manual(), ids=lambda page: page.name)


def checked(text: str) -> list[str]:
    return [f"{line.where}: `{line.text.strip()}`: {what}" for line in lines_of(Page("page.md", text)) for what in complaints(line)]


@cache
def read_sources() -> str:
    return "\n".join(path.read_text() for room in ("platform", "operators", "tests", "benchmarks") for path in (ROOT / room).rglob("*.py"))


@every_page
def test_every_command_exists(page: Page) -> None:
    found = [f"{line.where}: `{line.text.strip()}`: {what}" for line in lines_of(page) for what in complaints(line)]
    found += [f"{block.where}: {what}" for block in page.blocks for what in block_complaints(block)]
    assert not found, "\n".join(found)


@every_page
def test_every_file_that_is_named_exists(page: Page) -> None:
    found = [f"{page.name}:{number}: there is no {text}" for number, text in page.spans if not own_path_exists(text)]
    assert not found, "\n".join(found)


@every_page
def test_every_variable_of_ours_is_read_somewhere(page: Page) -> None:
    missing = {name for name in re.findall(r"\bTUNEYARD_[A-Z_]+", page.text) if name not in read_sources()}
    assert not missing, f"{page.name}: nothing reads {', '.join(sorted(missing))}"


def test_readme_is_short_and_says_first_that_no_gpu_was_there() -> None:
    readme = read_page(ROOT / "README.md")
    assert len(readme.text.splitlines()) <= 70
    first = "\n".join(readme.text.splitlines()[:8])
    assert "No GPU has run Tuneyard" in first
    assert "(docs/tried.md)" in first
    assert "benchmarks/README.md#not-measured" in read_page(ROOT / "docs" / "tried.md").text


def test_the_page_of_commands_has_every_one() -> None:
    told = {line.argv[1] for line in lines_of(read_page(ROOT / "docs" / "commands.md")) if line.program == "tuneyard"}
    assert {command.name for command in COMMANDS if not command.hidden} <= told


@every_page
def test_a_list_of_the_plugins_verbs_is_whole(page: Page) -> None:
    for _, text in page.spans:
        if text.startswith("kubectl tuneyard ") and " | " in text:
            assert tuple(text.removeprefix("kubectl tuneyard ").split(" | ")) == VERBS


def test_contributing_has_every_room() -> None:
    (page,) = (page for page in manual() if page.name == "CONTRIBUTING.md")
    rooms = {path.parent.name for path in (ROOT / "platform" / "tuneyard").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \| \D", page.text, re.M)) >= rooms


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("`tuneyard vaildate job.yaml`", "did you mean validate"),
        ("`tuneyard run job.yaml --fast`", "No such option: --fast"),
        ("`tuneyard checkpoints remove URI`", "has no command 'remove'"),
        ("```\ntuneyard plan\n```", "Missing argument"),
        ("`tuneyard run jobspecs/nothing.yaml`", "no file jobspecs/nothing.yaml"),
        ("`make everything`", "no target 'everything'"),
        ('`make quickstart ARGS="--quickly"`', "No such option: --quickly"),
        ("`python benchmarks/fence.py --turbo`", "no option --turbo"),
        ("`python -m tuneyard.nowhere x`", "no module or script"),
        ("`kubectl get jobspec.tuneyard.dev,jobz`", "no kind 'jobz'"),
        ("`kubectl tuneyard plan job.yaml`", "has no command 'plan'"),
        ("`helm upgrade tuneyard-hub charts/tuneyard-hub --set nope=1`", "no value nope"),
        ("`pip install .[everything]`", "no extra 'everything'"),
        ("```\n$ tuneyard run job.yaml \\\n    --fast\nerror: tuneyard run --never\n```", "--fast"),
    ],
)
def test_what_is_wrong_is_found(text: str, what: str) -> None:
    (found,) = checked(text)
    assert what in found


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("tuneyard status [NAME] · why NAME · cancel NAME      also: kubectl", ["status NAME", "why NAME", "cancel NAME"]),
        ("tuneyard history list | import CSV     past runs", ["history list", "history import CSV"]),
        (
            "tuneyard checkpoints convert URI --dtype bf16|fp32",
            ["checkpoints convert URI --dtype bf16", "checkpoints convert URI --dtype fp32"],
        ),
        ("tuneyard logs bot --rank N   # one", ["logs bot --rank 2"]),
        ("HF_TOKEN=x tuneyard run job.yaml --out 'a b' | less", ["run job.yaml --out a b"]),
    ],
)
def test_usage_lines_are_taken_apart(text: str, lines: list[str]) -> None:
    found: list[Line] = list(lines_of(Page("page.md", f"```\n{text}\n```\n")))
    assert [" ".join(line.argv[1:]) for line in found] == lines
