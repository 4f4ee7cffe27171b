"""Data sets of different kinds through `tuneyard init`, untouched: the job validates, and trains on what an expert's own job trains on."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import tiny_config, write_tokenizer

from tuneyard.api import TrainData, load_jobspec
from tuneyard.cli import main
from tuneyard.data import prepare

ROWS = 120


def jsonl(make: Callable[[int], Any]) -> str:
    return "".join(json.dumps(make(n), ensure_ascii=False) + "\n" for n in range(ROWS))


def table(separator: str, header: Sequence[str], make: Callable[[int], Sequence[object]]) -> str:
    lines: list[str] = []
    writer = csv.writer(type("Lines", (), {"write": lambda _, line: lines.append(line)})(), delimiter=separator)
    writer.writerows([header, *(make(n) for n in range(ROWS))])
    return "".join(lines)


def turns(name: str, content: str, asks: str, answers: str) -> Callable[[int], Any]:
    return lambda n: [{name: asks, content: f"the cat {n}?"}, {name: answers, content: f"it sat {n}"}]


@dataclass(frozen=True)
class Journey:
    """A file as a user has it, and the fields of `data` that an expert writes for it."""

    name: str
    text: str
    expert: dict[str, Any] = field(default_factory=dict)
    objective: str = "sft"
    answer: str = "it sat 7"
    """The part of row 7 that carries loss."""


PAIRS = table(",", ("question", "answer"), lambda n: (f"the cat {n}?", f"it sat {n}"))
TICKETS = ("id", "created", "subject", "body", "category", "answer")
ASKED = ("where", "when", "why")


def ticket(n: int) -> tuple[object, ...]:
    """A row of a support table: an identifier, a date, texts and an answer."""
    return f"T-{n}", f"2026-11-{n % 28 + 1:02} 10:00", f"the cat {n}", f"has it sat {n}?", ASKED[n % 3], f"it sat {n}"


def intent(n: int) -> tuple[object, ...]:
    return f"the cat {n} sat, and sang", f"it sat {n % 30}"


BY_TICKETS = {"columns": {"completion": "answer"}, "template": "subject: {subject}\nbody: {body}\ncategory: {category}"}
LABELS = table(",", ("text", "label"), lambda n: (f"the cat {n} sat, and sang", "good" if n % 3 else "bad"))
BY_LABELS = {"columns": {"completion": "label"}, "template": "Which label fits the text: good, bad?\n\n{text}"}
JOURNEYS = [
    Journey("pairs.csv", PAIRS, {"columns": {"prompt": "question", "completion": "answer"}, "chat": True}),
    Journey("labels.csv", LABELS, {**BY_LABELS, "chat": True}, answer="good"),
    Journey("tickets.csv", table(",", TICKETS, ticket), {**BY_TICKETS, "chat": True}),
    Journey(
        "nachrichten.csv",
        table(";", ("Betreff", "Nachricht", "Antwort"), lambda n: (*ticket(n)[2:4], ticket(n)[5])),
        {"columns": {"completion": "Antwort"}, "template": "Betreff: {Betreff}\nNachricht: {Nachricht}", "chat": True},
    ),
    Journey(
        "nachricht.csv",
        table(";", ("Nachricht", "Antwort"), lambda n: (ticket(n)[3], ticket(n)[5])),
        {"columns": {"prompt": "Nachricht", "completion": "Antwort"}, "chat": True},
    ),
    Journey(
        "mails.csv",
        table(",", TICKETS[2:5], lambda n: ticket(n)[2:5]),
        {
            "columns": {"completion": "category"},
            "template": "Which label fits the text: where, when, why?\n\nsubject: {subject}\nbody: {body}",
            "chat": True,
        },
        answer="when",
    ),
    Journey(
        "intents.csv",
        table(",", ("text", "intent"), intent),
        {"columns": {"completion": "intent"}, "template": "Which label fits the text?\n\n{text}", "chat": True},
    ),
    Journey("chats.jsonl", jsonl(lambda n: {"messages": turns("role", "content", "user", "assistant")(n)}), {"format": "chat"}),
    Journey(
        "sharegpt.jsonl",
        jsonl(lambda n: {"id": n, "conversations": turns("from", "value", "customer", "agent")(n)}),
        {"format": "chat", "roles": {"customer": "user", "agent": "assistant"}},
    ),
    Journey(
        "alpaca.jsonl",
        jsonl(lambda n: {"instruction": f"the cat {n}?", "input": "on a mat" if n % 2 else "", "output": f"it sat {n}"}),
        {"chat": True},
    ),
    Journey(
        "preferences.jsonl",
        jsonl(lambda n: {"prompt": f"the cat {n}?", "chosen": f"it sat {n}", "rejected": f"it ran {n}"}),
        {"chat": True},
        "dpo",
    ),
    Journey(
        "choices.jsonl",
        jsonl(lambda n: {"question": f"the cat {n}?", "choices": [f"it ran {n}", f"it sat {n}"], "answer": 1}),
        {"chat": True},
        answer="B",
    ),
    Journey(
        "fragen.csv",
        table(";", ("Frage", "Antwort"), lambda n: (f"the cat {n}; or, the dog?", f"it sat {n}")),
        {"columns": {"prompt": "Frage", "completion": "Antwort"}, "chat": True},
    ),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `chats` and `base`: models with a chat template and without, as far as `init` and `validate` look at them."""
    folder = tmp_path_factory.mktemp("models")
    for name, template in (("chats", {}), ("base", {"chat_template": None})):
        write_tokenizer(folder / name, **template)
        tiny_config(max_position_embeddings=4096).save_pretrained(folder / name)
    return folder


def rendered(data: TrainData, tokenizer: Any, objective: Any, cache: Path) -> list[tuple[str, str]]:
    """The text of each sample, and its part that carries loss."""
    whole = data.model_copy(update={"validation_fraction": 0.0, "shuffle": False})
    prepared = prepare(whole, tokenizer, objective=objective, seed=0, cache_dir=cache)
    rows = [prepared.train[prepared.order.at(n)] for n in range(len(prepared.train))]
    decode = tokenizer.decode
    return [(decode(row["input_ids"]), decode([token for token in row["labels"] if token >= 0])) for row in rows]


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.name)
def test_what_init_writes_trains_on_what_an_expert_trains_on(
    journey: Journey, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoTokenizer

    monkeypatch.chdir(tmp_path)
    (tmp_path / journey.name).write_text(journey.text, encoding="utf-8")
    assert main(["init", "--data", journey.name, "--model", str(models / "chats")]) == 0
    capsys.readouterr()
    assert main(["validate", "job.yaml"]) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if "not used" not in line and "form a question" not in line] == []
    train = load_jobspec(tmp_path / "job.yaml").spec.tasks[0].train
    assert train is not None
    assert train.objective == journey.objective
    tokenizer = AutoTokenizer.from_pretrained(models / "chats")
    expert = TrainData.model_validate({"source": journey.name, "maxLength": 512, **journey.expert})
    ours = rendered(train.data, tokenizer, train.objective, tmp_path / "cache")
    assert ours == rendered(expert, tokenizer, journey.objective, tmp_path / "cache")
    text, learned = ours[7]
    assert "<|user|>" in text
    assert learned.replace("<|end|>", "").replace("it ran 7", "").strip() == journey.answer


@pytest.mark.parametrize(
    ("name", "text", "prompt", "answer"),
    [
        ("pairs.csv", PAIRS, "the cat 7?\n\n### Response:\n", "it sat 7"),
        ("labels.csv", LABELS, "Which label fits the text: good, bad?\n\nthe cat 7 sat, and sang\n\n### Response:\n", "good"),
    ],
)
def test_a_model_without_a_chat_template_gets_a_mark_between_prompt_and_answer(
    name: str, text: str, prompt: str, answer: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoTokenizer

    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    assert main(["init", "--data", name, "--model", str(models / "base")]) == 0
    train = load_jobspec(tmp_path / "job.yaml").spec.tasks[0].train
    assert train is not None
    tokenizer = AutoTokenizer.from_pretrained(models / "base")
    assert rendered(train.data, tokenizer, "sft", tmp_path / "cache")[7] == (f"{prompt}{answer}<|end|>", f"{answer}<|end|>")


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (table(",", ("text", "label"), lambda n: (f"the cat {n} sat", f"label {n}")), "text"),
        (table(",", ("text", "label"), lambda n: (f"the cat {n} sat", "good")), "text"),
        (table(",", ("text", "note"), lambda n: (f"the cat {n} sat", f"a note of {n} words that nobody would call a label")), "text"),
    ],
)
def test_values_that_are_no_small_set_are_no_labels(text: str, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(text)
    assert main(["init"]) == 0
    train = load_jobspec(tmp_path / "job.yaml").spec.tasks[0].train
    assert train is not None
    assert (train.data.format, train.data.template) == (format, None)


def test_a_column_beside_text_may_be_made_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(table(",", ("text", "label"), lambda n: (f"the cat {n} sat", f"label {n}")))
    assert main(["init"]) == 0
    [told] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("if label is the answer to text: ")]
    assert main([*told.partition(": tuneyard ")[2].split(), "--force"]) == 0
    train = load_jobspec(tmp_path / "job.yaml").spec.tasks[0].train
    assert train is not None
    assert train.data.columns == {"prompt": "text", "completion": "label"}


def test_a_template_of_the_user_wins_over_proposals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(table(",", TICKETS, ticket))
    assert main(["init", "--template", "{subject}: {body}"]) == 0
    train = load_jobspec(tmp_path / "job.yaml").spec.tasks[0].train
    assert train is not None
    assert (train.data.template, train.data.format, train.data.chat) == ("{subject}: {body}", "prompt-completion", True)


@pytest.mark.parametrize(
    ("sides", "roles"),
    [
        (("agent", "customer"), {"agent": "assistant", "customer": "user"}),
        (("Anna", "Ben"), {"anna": "user", "ben": "assistant"}),
        (("user", "Ben"), {"ben": "assistant"}),
        (("Anna", "assistant"), {"anna": "user"}),
    ],
)
def test_who_is_who_is_proposed(sides: tuple[str, str], roles: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chats.jsonl").write_text(
        jsonl(lambda n: {"messages": [*turns("role", "content", *sides)(n), *turns("role", "content", *sides)(n)]})
    )
    assert main(["init"]) == 0
    train = load_jobspec(tmp_path / "job.yaml").spec.tasks[0].train
    assert train is not None
    assert train.data.roles == roles
