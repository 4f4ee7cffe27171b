"""What a step of a rank task reads: rows in the order's own places, and memory that stays with the process."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.data.prepared_order import PreparedOrder
from tuneyard.data.stream.windows import Windows
from tuneyard.training.rank.rows import OrderInBlocks


@settings(max_examples=25)  # a block over epochs of one row takes 0.2 s
@given(rows=st.integers(1, 40_000), places=st.lists(st.integers(0, 100_000), max_size=50), seed=st.integers(0, 9))
def test_blocks_have_the_rows_of_the_order(rows: int, places: list[int], seed: int) -> None:
    order = PreparedOrder(Windows.over([rows * 100], seed, shuffle=True), (rows,))
    blocks = OrderInBlocks(order)
    asked = np.asarray(places, dtype=np.int64)  # in any order, over epochs, and twice
    for _ in range(2):
        assert blocks.at_each(asked).tolist() == order.at_each(asked).tolist()


def test_a_run_of_places_over_blocks_has_each_row_once() -> None:
    blocks = OrderInBlocks(PreparedOrder(Windows.over([1_000_000], 3, shuffle=True), (40_000,)))
    found = np.concatenate([blocks.at_each(np.arange(start, start + 1_000)) for start in range(0, 40_000, 1_000)])
    assert sorted(found.tolist()) == list(range(40_000))
    assert blocks.at_each(np.arange(40_000)).tolist() == found.tolist()


FAULTS = """
import resource, sys
import numpy as np
from tuneyard.training.rank.heap import keep_freed_memory
if sys.argv[1] == "kept" and not keep_freed_memory():
    raise SystemExit("no glibc")
def step():
    for made in [np.ones(1 << 19) for _ in range(8)]:  # 4 MB each
        made.sum()
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    said = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=False)
    if "no glibc" in said.stderr:
        pytest.skip("another allocator")
    return int(said.stdout)


def test_memory_that_a_step_frees_is_not_cleared_by_the_kernel_again() -> None:
    assert faults("kept") < 100 < faults("plain")
