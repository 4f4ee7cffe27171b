"""The answer inside of a text: how it is cut out, its number or letter, and when two answers are alike.

`cut` makes a function of the field `score.answer`; each word that the field may hold is an entry of its table `FORMS`.
"""

from tuneyard.metrics.answers.alike import IGNORED, alike, normalised
from tuneyard.metrics.answers.cut import FORMS, Cut, TooSlow, by_form, by_path, by_pattern
from tuneyard.metrics.answers.numbers import number_in, value_in

__all__ = [
    "FORMS",
    "IGNORED",
    "Cut",
    "TooSlow",
    "alike",
    "by_form",
    "by_path",
    "by_pattern",
    "normalised",
    "number_in",
    "value_in",
]
