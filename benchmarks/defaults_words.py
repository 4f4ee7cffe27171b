"""What the small model of `benchmarks/defaults.py` has read before it is tuned: chats that need skills which any language model has.

It repeats and picks words, reads fields and lettered lists, knows what is an animal and what a fruit, remembers a turn, and writes JSON. It
has seen neither the rules nor the forms of answers of the data sets that it is tuned on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random

COLOURS = ("red", "blue", "green", "black", "white", "brown", "yellow", "grey", "pink", "purple")
OBJECTS = ("cup", "box", "hat", "lamp", "chair", "desk", "book", "pen", "bag", "clock", "bell", "coat")
ANIMALS = ("dog", "cat", "horse", "cow", "bird", "fish", "sheep", "goat", "duck", "fox")
FRUITS = ("apple", "pear", "plum", "grape", "lemon", "cherry", "melon", "peach")
CITIES = ("Graz", "Linz", "Wels", "Wien", "Bern", "Basel", "Bonn", "Rome", "Oslo", "Paris")
NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Hugo", "Ines", "Jonas", "Karim", "Lena")
MONTHS = ("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November", "Dezember")
KINDS = {"an animal": ANIMALS, "a fruit": FRUITS, "a colour": COLOURS, "a city": CITIES, "a thing": OBJECTS, "a person": NAMES}
TOPICS = {
    "billing": ("invoice", "refund", "discount", "receipt", "payment"),
    "delivery": ("parcel", "courier", "address", "tracking", "shipment"),
    "login": ("password", "account", "username", "code", "profile"),
    "returns": ("exchange", "defect", "scratch", "warranty", "repair"),
}
WORDS = tuple(dict.fromkeys(word for words in (*KINDS.values(), MONTHS, *TOPICS.values()) for word in words))
Turns = list[dict[str, str]]


def skills(count: int, seed: int = 0) -> Iterator[Turns]:
    """Chats, each of a skill drawn at random; the same for the same seed."""
    random = Random(seed)
    for _ in range(count):
        yield random.choice(_SKILLS)(random)


def said(*turns: str) -> Turns:
    """A chat of turns that alternate between a user and an assistant."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(turns)]


def _repeat(random: Random) -> Turns:
    words = " ".join(random.sample(WORDS, random.randint(1, 4)))
    return said(random.choice(("Repeat: {}", "Say {}", "{} - once more")).format(words), words)


def _place(random: Random) -> Turns:
    words = random.sample(WORDS, random.randint(3, 5))
    name, place = random.choice((("first", 0), ("second", 1), ("third", 2), ("last", -1)))
    return said(f"The {name} of: {' '.join(words)}", words[place])


def _field(random: Random) -> Turns:
    fields = {
        "name": NAMES,
        "city": CITIES,
        "colour": COLOURS,
        "animal": ANIMALS,
        "thing": OBJECTS,
        "number": tuple(map(str, range(2, 60))),
    }
    chosen = {name: random.choice(fields[name]) for name in random.sample(list(fields), 3)}
    asked = random.choice(list(chosen))
    return said(f"{', '.join(f'{name} is {value}' for name, value in chosen.items())}. What is the {asked}?", chosen[asked])


def _scene(random: Random) -> Turns:
    name, city, colour, thing = (random.choice(words) for words in (NAMES, CITIES, COLOURS, (*ANIMALS, *OBJECTS)))
    asked, answer = random.choice((("Who is it", name), ("Where", city), ("Which colour", colour), ("Which thing", thing)))
    scene = random.choice(("{0} from {1} has a {2} {3}.", "A {2} {3} waits for {0} in {1}.", "In {1}, {0} sees a {2} {3}."))
    return said(f"{scene.format(name, city, colour, thing)} {asked}?", answer)


def _kind(random: Random) -> Turns:
    kind = random.choice(list(KINDS))
    return said(f"What is {random.choice(KINDS[kind])}?", kind)


def _pick(random: Random) -> Turns:
    kind, *others = random.sample(list(KINDS), 3)
    right = random.choice(KINDS[kind])
    words = [right, *(random.choice(KINDS[other]) for other in others)]
    random.shuffle(words)
    return said(f"Find {kind}: {', '.join(words)}", right)


def _letters(random: Random) -> Turns:
    words = random.sample(WORDS, random.randint(2, 4))
    place = random.randrange(len(words))
    listed = "\n".join(f"{letter}. {word}" for letter, word in zip("ABCD", words, strict=False))
    if random.random() < 0.5:
        return said(f"{listed}\nWhat is {'ABCD'[place]}?", words[place])
    return said(f"{listed}\nLetter of {words[place]}?", "ABCD"[place])


def _memory(random: Random) -> Turns:
    name, city = random.choice(NAMES), random.choice(CITIES)
    asked, answer = random.choice((("Who am I?", name), ("Where do I live?", city)))
    return said(f"I am {name} and live in {city}.", f"Hello {name}!", asked, answer)


def _told(random: Random) -> Turns:
    thing, city = random.choice(OBJECTS), random.choice(CITIES)
    asked, answer = random.choice((("What do you sell?", thing), ("Where is your shop?", city)))
    return [{"role": "system", "content": f"You sell a {thing} in {city}."}, *said(asked, answer)]


def _greeting(random: Random) -> Turns:
    name = random.choice(NAMES)
    asked = random.choice(("Greet {}.", "Please greet {}.", "Say something nice to {}."))
    return said(asked.format(name), random.choice(("Hi {}!", "Good day, {}.")).format(name))


def _json(random: Random) -> Turns:
    fields = {
        "name": random.choice(NAMES),
        "city": random.choice(CITIES),
        "thing": random.choice(OBJECTS),
        "colour": random.choice(COLOURS),
    }
    chosen = {name: fields[name] for name in random.sample(list(fields), random.randint(1, 3))}
    return said(f"JSON of {', '.join(f'{name} {value}' for name, value in chosen.items())}", json.dumps(chosen))


_SKILLS: tuple[Callable[[Random], Turns], ...] = (
    *(_repeat, _place, _field, _scene, _kind, _pick, _letters, _letters, _memory, _told, _greeting, _json),
)
