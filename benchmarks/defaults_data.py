"""Data sets of `benchmarks/defaults.py`: files as users have them, prompts that are held out, and what an expert writes for each.

Each has a rule that a small model can learn: a table to look up, a word that decides, a field to copy. A held-out prompt joins parts that
the training has only seen apart.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.defaults_words import ANIMALS, CITIES, COLOURS, KINDS, MONTHS, NAMES, OBJECTS, TOPICS, said

ASKED = 32
"""Held-out prompts of a data set."""
MOST_ROWS = 480


@dataclass(frozen=True)
class Asked:
    """A held-out prompt, or the messages of a chat up to the answer, and the right answer."""

    prompt: str | list[dict[str, Any]]
    answer: str
    tools: Sequence[Any] = ()


@dataclass(frozen=True)
class DataSet:
    """`file`: as the user has it. `held`: such a file of the held-out rows, in the order of `asked`. `expert`: the fields of `data` in the
    expert's job. `apart`: no default was chosen by a look at it.
    """

    file: str
    kind: str
    content: bytes
    held: bytes
    rows: int
    asked: list[Asked]
    expert: dict[str, Any] = field(default_factory=dict)
    objective: str = "sft"
    apart: bool = False

    @property
    def name(self) -> str:
        return self.file.split(".")[0]

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.file).write_bytes(self.content)


@dataclass(frozen=True)
class Item:
    """A row of a file, and the question for it. Items of one `key` are all trained on, or all held out."""

    key: Any
    row: Any
    asked: Asked


def data_sets() -> list[DataSet]:
    """All data sets; the same at each call."""
    return [build(Random(name)) for name, build in _BUILDERS.items()]


def _made(file: str, kind: str, items: Sequence[Item], write: Callable[[list[Any]], bytes], random: Random, **others: Any) -> DataSet:
    """The data set of some items: those of some keys are held out, of the others at most MOST_ROWS are rows."""
    shuffled = random.sample(items, len(items))
    keys = list(dict.fromkeys(item.key for item in shuffled))
    aside = set(keys[: max(1, len(keys) // 8)])
    rows = [item.row for item in shuffled if item.key not in aside][:MOST_ROWS]
    held = [item for item in shuffled if item.key in aside][:ASKED]
    return DataSet(file, kind, write(rows), write([item.row for item in held]), len(rows), [item.asked for item in held], **others)


def _jsonl(rows: list[Any]) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def _table(separator: str, *header: str) -> Callable[[list[Any]], bytes]:
    def write(rows: list[Any]) -> bytes:
        file = io.StringIO()
        csv.writer(file, delimiter=separator).writerows([header, *rows])
        return file.getvalue().encode()

    return write


def _pairs(random: Random) -> DataSet:
    halls, shelves = random.sample(range(1, 13), len(OBJECTS)), random.sample(range(1, 11), len(COLOURS))
    asks = ("Where is the {} {}?", "I am looking for a {} {}.", "Do you have a {} {}?")
    items = []
    for (thing, hall), (colour, shelf), ask in product(zip(OBJECTS, halls, strict=True), zip(COLOURS, shelves, strict=True), asks):
        prompt, answer = ask.format(colour, thing), f"The {thing} is in hall {hall}, on the {colour} shelf {shelf}."
        items.append(Item((thing, colour), (prompt, answer), Asked(prompt, answer)))
    expert = {"columns": {"prompt": "question", "completion": "answer"}, "chat": True}
    return _made("shop.csv", "questions and answers, from two tables", items, _table(",", "question", "answer"), random, expert=expert)


def _labels(random: Random) -> DataSet:
    texts = ("My {} is wrong, {}", "Hello, {} here: no {} yet", "A question of {} about the {}", "Where is the {} for {}?")
    items = []
    for (label, words), text, name in product(TOPICS.items(), texts, NAMES):
        for word in words:
            mail = text.format(*((name, word) if text.startswith(("Hello", "A ")) else (word, name)))
            items.append(Item((word, name), (mail, label), Asked(mail, label)))
    expert = {"columns": {"completion": "label"}, "template": "Which label fits the text: billing, delivery, login, returns?\n\n{text}"}
    write = _table(",", "text", "label")
    return _made("mails.csv", "`text,label`: a word decides", items, write, random, expert={**expert, "chat": True})


def _chats(random: Random) -> DataSet:
    trains = dict(zip(CITIES, random.sample(range(2, 30), len(CITIES)), strict=True))
    system = {"role": "system", "content": "You are the guide of a zoo."}
    items = []
    for name, city, ask in product(NAMES, CITIES, ("How do I get to you?", "Which train do I take?", "I come by train.")):
        answer = f"From {city} take train {trains[city]}, {name}."
        turns = [system, *said(f"I am {name}, from {city}.", f"Welcome, {name}.", ask, answer)]
        items.append(Item((name, city), {"messages": turns}, Asked(turns[:-1], answer)))
    return _made("zoo.jsonl", "chats of two turns; the answer needs the first", items, _jsonl, random, expert={"format": "chat"})


def _sharegpt(random: Random) -> DataSet:
    items = []
    for colour, thing, city in product(COLOURS, OBJECTS, CITIES):
        turns = (f"My {colour} {thing} is broken.", f"I am sorry about the {thing}.", f"Send a new one to {city}.")
        answer = f"A new {colour} {thing} goes to {city}."
        rows = [{"from": ("customer", "agent")[place % 2], "value": text} for place, text in enumerate((*turns, answer))]
        items.append(Item((colour, thing), {"id": len(items), "conversations": rows}, Asked(said(*turns), answer)))
    expert = {"format": "chat", "roles": {"customer": "user", "agent": "assistant"}}
    return _made("hotline.jsonl", "ShareGPT with speakers `customer` and `agent`", items, _jsonl, random, expert=expert)


def _alpaca(random: Random) -> DataSet:
    items = []
    for colour, animal, city, place in product(COLOURS, ANIMALS, CITIES, range(3)):
        instruction = ("Name the colour in the text.", "Name the animal in the text.", "Name the city in the text.")[place]
        text, answer = f"Look at the {colour} {animal} of {city}", f"It is {(colour, animal, city)[place]}."
        row = {"instruction": instruction, "input": text, "output": answer}
        items.append(Item((colour, animal), row, Asked(f"{instruction}\n\n{text}", answer)))
    return _made("animals.jsonl", "Alpaca with `input`: copy one of three fields", items, _jsonl, random, expert={"chat": True})


def _preferences(random: Random) -> DataSet:
    items = []
    for name, ask, city in product(NAMES, ("Greet {}.", "Please greet {}.", "Say something nice to {}."), CITIES):
        prompt = f"{ask.format(name)} It is late in {city}."
        row = {"prompt": prompt, "chosen": f"Good day, {name}.", "rejected": f"Hi {name}!"}
        items.append(Item((name, city), row, Asked(prompt, f"Good day, {name}.")))
    return _made("tone.jsonl", "preference: one of two greetings", items, _jsonl, random, expert={"chat": True}, objective="dpo")


def _choices(random: Random) -> DataSet:
    asked_for = {"an animal": "animal", "a fruit": "fruit", "a city": "city", "a colour": "colour"}
    items = []
    for number in range(700):
        kind, *others = random.sample(list(asked_for), 3)
        right = random.choice(KINDS[kind])
        words = [right, *(random.choice(KINDS[other]) for other in others)]
        random.shuffle(words)
        question = f"Which one is the {asked_for[kind]}?"
        row = {"question": question, "choices": words, "answer": words.index(right)}
        listed = [f"{letter}. {word}" for letter, word in zip("ABC", words, strict=True)]
        items.append(Item(number, row, Asked("\n".join([question, *listed, "Answer:"]), "ABC"[words.index(right)])))
    return _made("quiz.jsonl", "a question with choices", items, _jsonl, random, expert={"chat": True})


def _german(random: Random) -> DataSet:
    items = []
    for (month, name), day, ask in product(enumerate(MONTHS, 1), range(1, 29), ("Wann ist der {}. {}?", "Schreibe {}. {} kurz; als Datum")):
        prompt, answer = ask.format(day, name), f"{day:02}.{month:02}."
        items.append(Item((month, day), (prompt, answer), Asked(prompt, answer)))
    expert = {"columns": {"prompt": "Frage", "completion": "Antwort"}, "chat": True}
    return _made("termine.csv", "German, separated by `;`: dates in figures", items, _table(";", "Frage", "Antwort"), random, expert=expert)


# Not looked at while defaults were chosen.


def _tools(random: Random) -> DataSet:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {key: {"type": "string"}}}}}
        for name, key in (("weather", "city"), ("stock", "item"))
    ]
    asks = {
        "Is it cold in {}?": "weather",
        "Do I need a coat in {}?": "weather",
        "Is a {} left?": "stock",
        "Can I still buy a {}?": "stock",
    }
    items = []
    for ask, function in asks.items():
        for value, colour in product(CITIES if function == "weather" else OBJECTS, (*COLOURS, "")):
            prompt = f"{ask.format(value)} I like {colour}." if colour else ask.format(value)
            arguments = {"city" if function == "weather" else "item": value}
            call = {"id": "c1", "type": "function", "function": {"name": function, "arguments": json.dumps(arguments)}}
            turns = [*said(prompt), {"role": "assistant", "content": "", "tool_calls": [call]}]
            answer = f'<tool_call>{{"name": "{function}", "arguments": {json.dumps(arguments)}}}</tool_call>'
            items.append(Item((ask, value), {"messages": turns, "tools": tools}, Asked(said(prompt), answer, tools)))
    return _made("calls.jsonl", "tool calls, in OpenAI's form", items, _jsonl, random, expert={"format": "chat"}, apart=True)


def _squad(random: Random) -> DataSet:
    items = []
    for name, city, thing in product(NAMES, CITIES, OBJECTS):
        place = random.randrange(3)
        question = ("Who went shopping?", "Where was the shop?", "What was bought?")[place]
        context = f"Last week {name} took a tram through {city}, and came home with a {thing}."
        answer = (name, city, thing)[place]
        row = {"context": context, "question": question, "answers": {"text": [answer], "answer_start": [context.index(answer)]}}
        items.append(Item((name, city), row, Asked(f"{question}\n\n{context}", answer)))
    return _made("reading.jsonl", "SQuAD: a passage and a question", items, _jsonl, random, expert={"chat": True}, apart=True)


def _bookings(random: Random) -> DataSet:
    system = "You write orders down as JSON."
    items = []
    for name, thing, number in product(NAMES, OBJECTS, range(2, 10)):
        prompt = f"This is {name}. Please keep {number} of the {thing} for me."
        answer = json.dumps({"item": thing, "count": number, "for": name})
        row = {"system": system, "prompt": prompt, "response": answer}
        items.append(Item((name, thing), row, Asked([{"role": "system", "content": system}, *said(prompt)], answer)))

    def write(rows: list[Any]) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), file)
        return file.getvalue()

    expert = {"columns": {"prompt": "prompt", "completion": "response", "system": "system"}, "chat": True}
    return _made("orders.parquet", "Parquet with a system text: fields to JSON", items, write, random, expert=expert, apart=True)


def _stars(random: Random) -> DataSet:
    good, bad = ("great", "lovely", "perfect"), ("poor", "awful", "ugly")
    items = []
    for thing, colour, word in product(OBJECTS, COLOURS, (*good, *bad)):
        review, stars = f"The {colour} {thing} is {word}.", 5 if word in good else 1
        items.append(Item((thing, colour), {"review": review, "stars": stars}, Asked(review, str(stars))))
    expert = {"columns": {"completion": "stars"}, "template": "Which label fits the text: 5, 1?\n\n{review}", "chat": True}

    def write(rows: list[Any]) -> bytes:
        return json.dumps(rows, indent=1).encode()

    return _made("reviews.json", "a JSON array: numbers as labels", items, write, random, expert=expert, apart=True)


def _swapped(random: Random) -> DataSet:
    items = []
    for colour, thing, animal in product(COLOURS, OBJECTS, ANIMALS):
        prompt, answer = f"{colour} {thing}, {animal}", f"{animal} / {thing} / {colour}"
        items.append(Item((colour, thing), (prompt, answer), Asked(prompt, answer)))
    expert = {"columns": {"prompt": "query", "completion": "target"}, "chat": True}
    return _made("swap.tsv", "tabs; words in another order", items, _table("\t", "query", "target"), random, expert=expert, apart=True)


_BUILDERS: dict[str, Callable[[Random], DataSet]] = {
    "pairs": _pairs, "labels": _labels, "chats": _chats, "sharegpt": _sharegpt, "alpaca": _alpaca, "preferences": _preferences,
    "choices": _choices, "german": _german, "tools": _tools, "squad": _squad, "bookings": _bookings, "stars": _stars, "swapped": _swapped,
}  # fmt: skip
