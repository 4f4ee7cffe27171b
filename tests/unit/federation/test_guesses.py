"""What a team's guesses are worth: learned from tasks that have ended, in whatever order they are told of."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.worlds import ask

from tuneyard.federation import Guesses

tasks = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.floats(1, 1e6), st.floats(1, 1e6), st.integers(0, 1000)),
    max_size=40,
    unique_by=lambda each: each[3],
)


def learned(*tasks: tuple[str, float, float, int]) -> Guesses:
    guesses = Guesses()
    for team, said_s, took_s, ended in tasks:
        guesses.learn((f"j{ended}", "train"), team, said_s, took_s, float(ended))
    return guesses


def test_of_whom_nothing_is_known_is_believed() -> None:
    assert Guesses().correction("a", 3600.0) == 1.0
    assert learned(("b", 60.0, 600.0, 1)).correction("a", 60.0) == 1.0


def test_who_says_a_tenth_is_soon_taken_at_ten_times_its_word() -> None:
    guesses = learned(*(("a", 60.0, 600.0, number) for number in range(30)))
    assert 7 < guesses.correction("a", 60.0) <= 10
    assert 7 < guesses.correction("a", 5e5) <= 10, "of other sizes, until they are known"


def test_one_wrong_guess_changes_little() -> None:
    assert learned(("a", 60.0, 600.0, 1)).correction("a", 60.0) < 2.5


def test_many_small_true_guesses_do_not_cover_a_large_false_one() -> None:
    """Nine of ten are small and true."""
    guesses = learned(*(("a", *((5000.0, 50_000.0) if number % 10 == 0 else (60.0, 60.0)), number) for number in range(600)))
    assert guesses.correction("a", 60.0) < 1.2
    assert guesses.correction("a", 5000.0) > 3


@given(tasks, st.integers(0, 99))
def test_the_next_leader_who_reads_them_in_another_order_corrects_alike(known: list[tuple[str, float, float, int]], seed: int) -> None:
    other = random.Random(seed).sample(known, len(known))
    one, two = learned(*known), learned(*other)
    for size in (1.0, 50.0, 5e3, 1e6):
        assert math.isclose(one.correction("a", size), two.correction("a", size), rel_tol=1e-9)


@given(tasks)
def test_what_is_forgotten_counts_no_more(known: list[tuple[str, float, float, int]]) -> None:
    guesses = learned(*known)
    for _, _, _, ended in known[::2]:
        guesses.forget((f"j{ended}", "train"))
    kept = learned(*known[1::2])
    assert math.isclose(guesses.correction("a", 100.0), kept.correction("a", 100.0), rel_tol=1e-9)


@pytest.mark.parametrize(("said_s", "took_s"), [(0.0, 5.0), (5.0, 0.0), (-1.0, 5.0), (math.nan, 5.0), (5.0, math.inf), (math.inf, 5.0)])
def test_nonsense_teaches_nothing(said_s: float, took_s: float) -> None:
    assert not learned(("a", said_s, took_s, 1)).learn(("x", "train"), "a", said_s, took_s, 2.0)
    assert learned(("a", said_s, took_s, 1)).correction("a", 60.0) == 1.0


def test_a_correction_is_bounded_whatever_was_said() -> None:
    guesses = learned(*(("a", 1e-300, 1e300, number) for number in range(50)))
    assert guesses.correction("a", 60.0) <= 100.0


def test_only_an_authors_guess_is_corrected() -> None:
    guesses = learned(*(("t", 60.0, 600.0, number) for number in range(30)))
    for basis in ("pace", "plan", "assumed", "corrected"):
        assert guesses.corrected(ask(basis=basis)).seconds == ask().seconds
    assert guesses.corrected(ask(basis="given")).seconds > 5 * ask().seconds


def test_who_asks_is_told_when_a_correction_has_moved() -> None:
    guesses = Guesses()
    guesses.correction("a", 60.0)
    moved = [
        guesses.learn((f"j{number}", "train"), "a", 60.0, 600.0, float(number)) for number in range(60) if guesses.correction("a", 60.0)
    ]
    assert 3 <= sum(moved) <= 12


def test_the_next_leader_corrects_alike_after_more_tasks_than_are_counted_and_after_deletions() -> None:
    """A leader that had lived through 1,000 tasks forgot the oldest: once the newest JobSpecs were deleted, it believed the team again,
    and the next leader, who read the others, did not."""
    chance = random.Random(1)
    rows = [((f"j{number}", "train"), "a", 60.0, 60.0 * chance.lognormvariate(1.0, 1.0), float(number)) for number in range(1500)]
    lived, read = Guesses(), Guesses()
    for row in rows:
        lived.learn(*row)
    for row in reversed(rows):
        read.learn(*row)
    assert math.isclose(lived.correction("a", 60.0), read.correction("a", 60.0), rel_tol=1e-6)
    for key, *_ in rows[600:]:
        lived.forget(key)
    left = Guesses()
    for row in rows[:600]:
        left.learn(*row)
    assert left.correction("a", 60.0) == lived.correction("a", 60.0) > 1.5


def test_tasks_that_hold_nothing_buy_no_trust() -> None:
    """40 tasks of a second that were to take an hour brought a team's guesses to a hundredth of what it said: -18 % of its completion."""
    guesses = Guesses()
    for number in range(40):
        guesses.learn((f"tiny{number}", "train"), "a", 3600.0, 1.0, float(number))
    assert guesses.correction("a", 3600.0) > 0.9
    for number in range(40):
        guesses.learn((f"false{number}", "train"), "a", 3600.0, 36_000.0, 100.0 + number)
    assert guesses.correction("a", 3600.0) > 5
