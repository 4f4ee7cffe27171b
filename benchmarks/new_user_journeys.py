"""What a new user types, page by page: from a clone to a chat and a server, with pip, and to clusters."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from benchmarks.new_user_steps import Step

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
"""Holds the programs of Kubernetes, which Go takes twenty minutes to build."""
INSTALL, OWN_DATA, README = "docs/install.md", "docs/own-data.md", "README.md"
SUBMIT, CLUSTERS, QUICKSTART = "docs/submit.md", "docs/test-clusters.md", "docs/quickstart.md"
SERVING, EXPORTING = "docs/serving.md", "docs/exporting.md"
MODEL, SMALL = "Qwen/Qwen2.5-0.5B", "models/small"
"""The names that README's example and docs/own-data.md give; a folder of that name beside the job stands in for a download."""
ASKED, ANSWER = "Do you deliver to Graz, Linz and Wels?", "Yes, within two days."
SECOND_ASKED, SECOND_ANSWER = "What does plan C cost?", "Plan C costs 29 euros, taxes included."
PORT = 8765
PAIRS = [
    (ASKED, ANSWER),
    ('Where is the button "Save"?', 'At the top right, beside "Cancel".'),
    ("Wie lange dauert die Rückgabe?", "Höchstens fünf Werktage, außer an Feiertagen."),
    ("Can I pay by invoice?", ""),
    ("Müssen Käufer über 18 sein?", "Ja, außer für Bücher."),
    ("How do I reset my password?", "Open the login page, then choose “Forgotten”."),
    *(
        (f"What does plan {letter} cost?", f"Plan {letter} costs {price} euros, taxes included.")
        for letter, price in zip("ABCDEFGH", range(9, 89, 10), strict=True)
    ),
    *(
        (f"Where is store {number}?", f'At gate {number * 7}, beside the "{name}".')
        for number, name in enumerate(["café", "bank", "park", "pool", "dock", "farm"], start=1)
    ),
]
"""A table as companies have them: commas, quotes, umlauts, and one row without an answer."""
CURL = (
    'curl http://127.0.0.1:8000/v1/chat/completions -H "Content-Type: application/json" '
    """-d '{"model": "first", "messages": [{"role": "user", "content": "Do you deliver to Graz?"}], "temperature": 0}'"""
)
"""As it stands in docs/serving.md."""


@dataclass(frozen=True)
class Journey:
    """`ends_by`: what is typed whatever has happened before, so that nothing stays behind. `about`: one line for the page."""

    name: str
    about: str
    steps: tuple[Step, ...]
    ends_by: Step | None = None


def journeys(folder: Path) -> dict[str, Journey]:
    """By name; `folder` holds what the user brings: the table, README's example with its data, and the state of clusters."""
    return {each.name: each for each in (_clone(folder), _pip(folder), _clusters(folder))}


def bring(folder: Path) -> None:
    """Write what the user has before the first step."""
    import csv

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "faq.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("question", "answer"), *PAIRS])
    full = [(question, answer) for question, answer in PAIRS if answer]
    chats = [{"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]} for q, a in full] * 8
    (folder / "chats.jsonl").write_text("".join(json.dumps(chat, ensure_ascii=False) + "\n" for chat in chats), encoding="utf-8")
    import pyarrow as pa
    import pyarrow.parquet as pq

    questions, answers = zip(*full, strict=True)
    pq.write_table(pa.table({"question": questions, "answer": answers}), folder / "holdout.parquet")
    readme = (ROOT / README).read_text(encoding="utf-8")
    (folder / "job.yaml").write_text(readme.split("```yaml\n", 1)[1].split("```", 1)[0], encoding="utf-8")


def _clone(folder: Path) -> Journey:
    return Journey(
        "clone",
        "From a clone to a model that chats, and that others ask over the network.",
        (
            *_cloned(),
            Step("make setup", INSTALL, "everything, in locked versions, in `.venv`", limit_minutes=30),
            Step('export PATH="$PWD/.venv/bin:$PATH"', QUICKSTART, "the command by its name"),
            _table(folder),
            _model(folder, SMALL),
            _looked_at(),
            _checked(),
            *_planned_and_tuned(),
            Step(
                "tuneyard export runs/first --format ollama --quantize q8_0 --out models/bot",
                EXPORTING,
                "a GGUF file and a Modelfile, compared with transformers",
                shows="greedy tokens are those of transformers",
            ),
            Step(
                "tuneyard serve runs/first",
                SERVING,
                "a server with OpenAI's API",
                typed=f"{{ tuneyard serve runs/first --port {PORT} & echo $! > serve.pid; }} > serve.log 2>&1; "
                'until grep "^models:" serve.log; do sleep 0.5; kill -0 "$(cat serve.pid)" || break; done; cat serve.log',
                shows=f"serving: http://127.0.0.1:{PORT}/v1",
            ),
            Step(
                CURL,
                SERVING,
                "the table's answer, from the server",
                typed=CURL.replace("8000", str(PORT)).replace("Do you deliver to Graz?", ASKED),
                shows=re.escape(f'"content":"{ANSWER}"'),
            ),
        ),
        ends_by=_by_hand("ends the server", _END_SERVER, "nothing that runs"),
    )


def _pip(folder: Path) -> Journey:
    return Journey(
        "pip",
        "With pip: the client alone, then what trains, then what scores.",
        (
            *_cloned(),
            Step("python3 -m venv ~/tuneyard-venv", INSTALL, "an empty environment"),
            Step("source ~/tuneyard-venv/bin/activate", INSTALL, "the environment is active"),
            Step("pip install .", INSTALL, "the client, without torch", shows="Successfully installed", limit_minutes=20),
            _table(folder),
            _model(folder, SMALL),
            _looked_at(),
            _checked(),
            Step("tuneyard plan job.yaml --sku h100", OWN_DATA, "what it takes on a GPU", shows="h100-80gb"),
            Step('eval "$(tuneyard completion bash)"', INSTALL, "completion in this shell"),
            Step(
                "pip install '.[train]'",
                INSTALL,
                "what trains",
                typed="cd ~/tuneyard && pip install '.[train]' && cd ~/faq",
                limit_minutes=40,
            ),
            *_planned_and_tuned(),
            Step("pip install uv", INSTALL, "the installer that knows overrides"),
            Step(
                "uv pip install '.[train,score-cpu]' --override requirements/cpu-overrides.txt",
                INSTALL,
                "vLLM for processors",
                typed="cd ~/tuneyard && uv pip install '.[train,score-cpu]' --override requirements/cpu-overrides.txt && cd ~/faq",
                limit_minutes=30,
            ),
            _by_hand(
                "adds README's task `judge` to the job",
                f"cat {shlex.quote(str(folder / 'judge.yaml'))} >> job.yaml",
                "a job that scores what it trains",
            ),
            Step("tuneyard run job.yaml --out runs/scored", OWN_DATA, "the answers scored, in the report", shows="exact_match|exact match"),
        ),
    )


def _clusters(folder: Path) -> Journey:
    state = shlex.quote(str(folder / "clusters"))
    make = f"XDG_CACHE_HOME={shlex.quote(str(CACHE))} make -C ~/tuneyard"
    options = f'ARGS="--state {state}"'
    bucket = "s3://tuneyard/support-bot"
    return Journey(
        "clusters",
        "README's own example on a hub with two members (`docs/test-clusters.md`).",
        (
            *_cloned(),
            Step("make setup", INSTALL, "everything, in locked versions, in `.venv`", limit_minutes=30),
            Step('export PATH="$PWD/.venv/bin:$PATH"', QUICKSTART, "the command by its name"),
            _by_hand(
                "has README's example and its data",
                f"mkdir ~/bot && cd ~/bot && cp {shlex.quote(str(folder))}/*.* .",
                "`job.yaml`, `chats.jsonl`, `holdout.parquet`",
            ),
            _model(folder, MODEL),
            Step(
                "make cluster-up",
                CLUSTERS,
                "a hub and two members",
                typed=f"{make} cluster-up {options}",
                shows="KUBECONFIG=",
                limit_minutes=40,
            ),
            Step(
                "export KUBECONFIG=/tmp/tuneyard-cluster/hub/kubeconfig",
                CLUSTERS,
                "the hub to talk to",
                typed=f"export KUBECONFIG={state}/hub/kubeconfig",
            ),
            Step(
                "source /tmp/tuneyard-cluster/storage.env",
                CLUSTERS,
                "keys of the storage",
                typed=f"source {state}/storage.env",
            ),
            Step(
                "tuneyard submit job.yaml --out s3://models/support-bot",
                SUBMIT,
                "the files shipped, the job on the hub",
                typed=f"tuneyard submit job.yaml --out {bucket}",
                shows="chats.jsonl",
            ),
            Step("tuneyard status", README, "phase and progress of every job", shows="support-bot"),
            Step("tuneyard why support-bot", README, "why it waits, or where it runs", shows="support-bot"),
            Step("tuneyard wait support-bot", SUBMIT, "the job's end", shows="Succeeded", limit_minutes=40),
            Step("tuneyard logs support-bot", SUBMIT, "what ranks have printed", shows=r"\S"),
            Step("tuneyard usage --since 30d", README, "what it took"),
            Step(
                "tuneyard report s3://models/support-bot", SUBMIT, "figures of both tasks", typed=f"tuneyard report {bucket}", shows="judge"
            ),
            Step(
                'tuneyard generate s3://models/support-bot "Do you deliver to Graz?"',
                SUBMIT,
                "an answer of the tuned model, on this machine",
                typed=f'tuneyard generate {bucket} "{ASKED}" --max-tokens 16',
            ),
        ),
        ends_by=Step("make cluster-down", CLUSTERS, "nothing that runs", typed=f"{make} cluster-down {options}"),
    )


_END_SERVER = 'pid=$(cat serve.pid 2>/dev/null) && kill "$pid" && while kill -0 "$pid" 2>/dev/null; do sleep 0.5; done; true'


def _cloned() -> tuple[Step, ...]:
    return (
        Step("git clone REPOSITORY tuneyard", INSTALL, "the repository", typed=f"git clone -q {shlex.quote(str(ROOT))} tuneyard"),
        Step("cd tuneyard", INSTALL, "in the clone"),
    )


def _by_hand(does: str, line: str, leaves: str) -> Step:
    return Step(does, "", leaves, typed=line)


def _table(folder: Path) -> Step:
    return _by_hand(
        "has a table",
        f"mkdir ~/faq && cd ~/faq && cp {shlex.quote(str(folder / 'faq.csv'))} .",
        "`faq.csv`: 20 questions, one without an answer",
    )


def _looked_at() -> Step:
    command = f"tuneyard init --data faq.csv --model {SMALL}"
    return Step(command, OWN_DATA, "`job.yaml`, with a comment on each setting", shows="job.yaml")


def _checked() -> Step:
    return Step("tuneyard validate job.yaml", OWN_DATA, "a file without mistakes", shows="ok")


def _model(folder: Path, name: str) -> Step:
    copied = f"mkdir -p {name} && cp -r {shlex.quote(str(folder / 'small'))}/. {name}"
    return _by_hand("has a model on disk", copied, f"`{name}`: a stand-in for a download, half a million weights")


def _line(text: str) -> str:
    """A pattern of a line that holds this text alone."""
    return rf"(?m:^{re.escape(text)}$)"


def _planned_and_tuned() -> tuple[Step, ...]:
    return (
        Step("tuneyard plan job.yaml", OWN_DATA, "memory, speed and time on this machine", shows="memory of a rank"),
        Step("tuneyard run job.yaml --out runs/first", OWN_DATA, "a tuned model, and its report", shows="report.json"),
        Step("tuneyard report runs/first", OWN_DATA, "the figures once more", shows="succeeded"),
        Step(
            f'tuneyard generate runs/first "{ASKED}"',
            OWN_DATA,
            "the table's answer, from the tuned model",
            shows=_line(ANSWER),
        ),
        Step(
            "tuneyard chat runs/first",
            SERVING,
            "two answers of the table, through a pipe",
            typed=f"printf '%s\\n' {shlex.quote(SECOND_ASKED)} /reset {shlex.quote(ASKED)} | tuneyard chat runs/first",
            shows=f"{_line(SECOND_ANSWER)}(.|\n)*{_line(ANSWER)}",
        ),
        Step("tuneyard history list", OWN_DATA, "the run among earlier ones", shows="faq"),
    )
