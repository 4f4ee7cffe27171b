"""Architectures of every kind through full training, packing, LoRA, saving and answering; docs/reference/models.md has all of them."""

from __future__ import annotations

import re

import pytest
from tests.zoo.findings import PARTS, read, statuses
from tests.zoo.page import PAGE, page
from tests.zoo.proofs import proven_once
from tests.zoo.runs import examined
from tests.zoo.traits import TRAINED


@pytest.mark.parametrize("model_type", TRAINED)
@proven_once
def test_a_kind_of_architecture_works_or_is_refused(model_type: str) -> None:
    found = examined(model_type)

    assert statuses(found) == TRAINED[model_type], found
    assert found["full"]["status"] == "refused" or found["stops"] == 24, "every answer ends by itself"
    refusals = [found[part]["words"] for part in PARTS if found[part]["status"] == "refused"]
    assert all("\n  next: " in words for words in refusals)


@pytest.mark.long
@pytest.mark.parametrize("model_type", sorted(read()))
def test_every_architecture_does_what_its_page_says(model_type: str) -> None:
    """The short tests: one class for each trait of `TRAINED`, and models of the other tests of training."""
    found, before = examined(model_type), read()[model_type]

    assert (statuses(found), found.get("stops")) == (statuses(before), before.get("stops")), found


def test_the_page_is_what_was_found() -> None:
    written = PAGE.read_text()
    (date,) = re.findall(r"20\d\d-\d\d-\d\d", written)

    assert written == page(list(read().values()), date)
