"""What a new user types, page by page: from a clone, with pip, and to clusters."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from benchmarks.new_user_steps import Step

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
"""Holds the programs of Kubernetes, which Go takes twenty minutes to build."""
INSTALL, OWN_DATA, README = "docs/install.md", "docs/own-data.md", "README.md"
SUBMIT, CLUSTERS, QUICKSTART = "docs/submit.md", "docs/test-clusters.md", "docs/quickstart.md"
MODEL, PROPOSED = "Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B-Instruct"
"""The names that README's example and `init` give; a folder of that name beside the job stands in for a download."""
ANSWER = "Yes, within two days."
PAIRS = [
    ("Do you deliver to Graz, Linz and Wels?", ANSWER),
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
        "From a clone to a model that answers.",
        (
            *_cloned(),
            Step("make setup", INSTALL, "everything, in locked versions, in `.venv`", limit_minutes=30),
            Step('export PATH="$PWD/.venv/bin:$PATH"', QUICKSTART, "the command by its name"),
            _table(folder),
            _looked_at(),
            _checked(),
            _model("faq.csv", PROPOSED),
            *_planned_and_tuned(),
        ),
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
            _model("faq.csv", PROPOSED),
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
    asked = '"Do you deliver to Graz, Linz and Wels?"'
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
            _model("chats.jsonl", MODEL),
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
                typed=f"tuneyard generate {bucket} {asked} --max-tokens 16",
            ),
        ),
        ends_by=Step("make cluster-down", CLUSTERS, "nothing that runs", typed=f"{make} cluster-down {options}"),
    )


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
    return Step("tuneyard init --data faq.csv", OWN_DATA, "`job.yaml`, with a comment on each setting", shows="job.yaml")


def _checked() -> Step:
    return Step("tuneyard validate job.yaml", OWN_DATA, "a file without mistakes", shows="ok")


def _model(data: str, name: str) -> Step:
    script = shlex.quote(str(ROOT / "benchmarks" / "new_user_model.py"))
    return _by_hand(
        "has a model on disk", f"python {script} {name} {data}", f"`{name}`: a stand-in for a download, 0.5 million random weights"
    )


def _planned_and_tuned() -> tuple[Step, ...]:
    edits = "s/method: .*/method: {full: {}}/; s/learningRate: [0-9.e-]*/learningRate: 0.003/; s/epochs: .*/epochs: 60/"
    return (
        _by_hand("changes three settings", f"sed -i {shlex.quote(edits)} job.yaml", "a job by which so small a model can learn"),
        Step("tuneyard plan job.yaml", OWN_DATA, "memory, speed and time on this machine", shows="memory of a rank"),
        Step("tuneyard run job.yaml --out runs/first", OWN_DATA, "a tuned model, and its report", shows="report.json"),
        Step("tuneyard report runs/first", OWN_DATA, "the figures once more", shows="succeeded"),
        Step(
            'tuneyard generate runs/first "Do you deliver to Graz, Linz and Wels?"',
            OWN_DATA,
            "the table's answer, from the tuned model",
            shows=f"^{ANSWER}$".replace(".", r"\.").replace("^", "(?m)^"),
        ),
        Step("tuneyard history list", OWN_DATA, "the run among earlier ones", shows="faq"),
    )
