"""Architectures of every kind through full training, packing, LoRA, saving and answering; docs/reference/models.md has all of them."""

from __future__ import annotations

import re

import pytest
from tests.zoo.findings import PARTS, read, statuses
from tests.zoo.page import PAGE, page
from tests.zoo.runs import examined

VARIED = {
    "bloom": ("works", "refused", "works"),  # no positions but biases, nothing that the catalog knows
    "doge": ("works", "works", "works"),  # a class with experts, whose configuration has none
    "gemma4": ("works", "works", "works"),  # a class with vision, whose own loss is a mean of each micro-batch
    "jamba": ("works", "refused", "works"),  # state-space layers, attention and experts
    "bart": ("refused", "refused", "refused"),
}
"""Not what other tests have: full, packed, LoRA."""


@pytest.mark.parametrize("model_type", VARIED)
def test_a_kind_of_architecture_works_or_is_refused(model_type: str) -> None:
    found = examined(model_type)

    assert statuses(found) == VARIED[model_type], found
    assert found["full"]["status"] == "refused" or found["stops"] == 24, "every answer ends by itself"
    refusals = [found[part]["words"] for part in PARTS if found[part]["status"] == "refused"]
    assert all("\n  next: " in words for words in refusals)


@pytest.mark.long
@pytest.mark.parametrize("model_type", sorted(read()))
def test_every_architecture_does_what_its_page_says(model_type: str) -> None:
    found, before = examined(model_type), read()[model_type]

    assert (statuses(found), found.get("stops")) == (statuses(before), before.get("stops")), found


def test_the_page_is_what_was_found() -> None:
    written = PAGE.read_text()
    (date,) = re.findall(r"20\d\d-\d\d-\d\d", written)

    assert written == page(list(read().values()), date)
