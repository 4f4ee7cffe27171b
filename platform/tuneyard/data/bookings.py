"""The quickstart's data: the mailbox of an invented restaurant. `python -m tuneyard.data.bookings OUT`

Files written: train.jsonl (chats: a guest's mail -> the booking as JSON); heldout.parquet (columns prompt and reference, from guests who
are in no other file); text.jsonl (mails with the restaurant's letters, for pre-training; no JSON); model/ (a small Llama shape and a
tokenizer trained on these texts; no weights). The same arguments give the same files.

The task is narrow, so that a model of half a million parameters learns it within a minute on two cores. The skills are general: to copy
a name that the model has never seen, and to turn words ("half past seven", "September") into figures.
"""

from __future__ import annotations

import json
from calendar import monthrange
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from tuneyard.data.small_model import SmallLlama, write_model

INSTRUCTION = "Write down this booking."
SHAPE = SmallLlama(hidden=128, ffn=352, layers=2, heads=4, kv_heads=2, vocabulary=1024, digits_per_token=2, initializer_range=0.05)
HELD_OUT_SHARE = 0.05
_YEAR = 2027
_FIRST_NAMES = (
    "Anna", "Ben", "Carla", "David", "Elena", "Felix", "Grace", "Hugo", "Ines", "Jonas",
    "Karim", "Lena", "Maria", "Nora", "Oscar", "Paula", "Quinn", "Rosa", "Samuel", "Tara",
)  # fmt: skip
_LAST_NAMES = (
    "Adams", "Berger", "Costa", "Dupont", "Ek", "Fischer", "Garcia", "Hansen", "Ito", "Jensen",
    "Keller", "Lopez", "Moreau", "Novak", "Olsen", "Patel", "Rossi", "Silva", "Turner", "Weber",
)  # fmt: skip
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
_TIMES = {"19:00": "seven", "19:30": "half past seven", "20:00": "eight", "20:30": "half past eight", "21:00": "nine"}
_REQUESTS = {
    "none": ("",),
    "window": (" A table by the window would be lovely.", " Could we sit at the window?"),
    "dog": (" We will bring our dog.", " Our dog comes with us."),
    "high chair": (" We need a high chair for the baby.", " Do you have a high chair?"),
    "vegan": (" One of us is vegan.", " Do you have vegan dishes?"),
}
_QUESTIONS = (
    "could we have a table for {party} on {day} at {hour}?",
    "I would like to book a table for {party} at {hour} on {day}.",
    "we are {party}. Is there a table on {day} at {hour}?",
)
_GREETINGS = ("Hello", "Hi", "Good morning")
_CLOSINGS = ("Thank you", "Best wishes", "Regards")


@dataclass(frozen=True)
class Booking:
    """One guest's mail, and the booking that it asks for. `month` and `day` count from 1; `time` is HH:MM."""

    name: str
    guests: int
    month: int
    day: int
    time: str
    request: str
    mail: str

    @property
    def prompt(self) -> str:
        return f"{INSTRUCTION}\n\n{self.mail}"

    @property
    def answer(self) -> str:
        """The booking as one line of JSON."""
        fields = {"name": self.name, "guests": self.guests, "date": f"{self.month:02}-{self.day:02}", "time": self.time}
        return json.dumps(fields | {"request": self.request})

    @property
    def letters(self) -> str:
        """The mail with the restaurant's letter, which confirms the booking in words."""
        booked = f"{_NUMBERS[self.guests]} is booked: {self.day} {_MONTHS[self.month - 1]} at {_TIMES[self.time]}"
        return f"{self.mail}\n\nDear {self.name},\nyour table for {booked}."


def bookings(seed: int) -> Iterator[Booking]:
    """An endless stream of bookings; the same for the same seed."""
    random = Random(seed)
    while True:
        month = random.randint(1, 12)
        day = random.randint(1, monthrange(_YEAR, month)[1])
        name = f"{random.choice(_FIRST_NAMES)} {random.choice(_LAST_NAMES)}"
        guests, time, request = random.choice(list(_NUMBERS)), random.choice(list(_TIMES)), random.choice(list(_REQUESTS))
        question = random.choice(_QUESTIONS).format(party=_NUMBERS[guests], day=f"{day} {_MONTHS[month - 1]}", hour=_TIMES[time])
        asked = question + random.choice(_REQUESTS[request])
        mail = f"{random.choice(_GREETINGS)},\n{asked}\n{random.choice(_CLOSINGS)}, {name}"
        yield Booking(name, guests, month, day, time, request, mail)


def held_out(name: str) -> bool:
    """Whether a guest is held out. No training text is from or to a held-out guest."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big") < HELD_OUT_SHARE * 2**32


def build(out: Path, samples: int = 4_000, held_out_samples: int = 64, texts: int = 4_000, seed: int = 0) -> dict[str, int]:
    """Write all files below `out`, and return the rows of each. `samples`: training chats; `texts`: documents for pre-training."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out.mkdir(parents=True, exist_ok=True)
    known = (booking for booking in bookings(seed) if not held_out(booking.name))
    train, read = list(islice(known, samples)), list(islice(known, texts))
    aside = islice((booking for booking in bookings(seed + 1) if held_out(booking.name)), held_out_samples)
    _write_lines(out / "train.jsonl", ({"messages": _turns(booking)} for booking in train))
    _write_lines(out / "text.jsonl", ({"text": booking.letters} for booking in read))
    rows = [{"prompt": booking.prompt, "reference": booking.answer} for booking in aside]
    pq.write_table(pa.Table.from_pylist(rows), out / "heldout.parquet")
    write_model(out / "model", SHAPE, [*(booking.letters for booking in read), *(f"{b.prompt}\n{b.answer}" for b in train)])
    return {"train": len(train), "heldout": len(rows), "texts": len(read)}


def _turns(booking: Booking) -> list[dict[str, str]]:
    return [{"role": "user", "content": booking.prompt}, {"role": "assistant", "content": booking.answer}]


def _write_lines(path: Path, rows: Iterable[object]) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{json.dumps(row)}\n" for row in rows)


def main(
    out: Annotated[Path, typer.Argument(help="folder to write to")],
    samples: Annotated[int, typer.Option(help="training chats", min=1)] = 4_000,
    heldout: Annotated[int, typer.Option(help="held-out rows", min=1)] = 64,
    texts: Annotated[int, typer.Option(help="documents of plain text", min=1)] = 4_000,
    seed: Annotated[int, typer.Option(help="other seeds give other mails")] = 0,
) -> None:
    """Build the quickstart's data set and base model: mails that ask for a table, and the bookings that they become."""
    counts = build(out, samples, heldout, texts, seed)
    print(f"{counts['train']} chats, {counts['heldout']} held-out prompts, {counts['texts']} texts -> {out}")


if __name__ == "__main__":
    typer.run(main)
