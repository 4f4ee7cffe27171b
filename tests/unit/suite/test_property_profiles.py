"""`make test` tries a third of the examples of a property test, the same ones each time; `make test-long` tries all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

Try = Callable[[str], list[int]]


@pytest.fixture
def try_examples(request: pytest.FixtureRequest) -> Iterator[Try]:
    """The examples of a property test with `max_examples=31` that pytest collects under a profile."""
    current = settings.get_current_profile_name()

    def collect_and_run(profile: str) -> list[int]:
        settings.load_profile(profile)
        tried: list[int] = []

        @settings(max_examples=31)
        @given(st.integers())
        def collected(value: int) -> None:
            tried.append(value)

        item = pytest.Function.from_parent(request.node.parent, name="collected", callobj=collected)
        request.config.hook.pytest_collection_modifyitems(session=request.session, config=request.config, items=[item])
        assert item.get_closest_marker("hypothesis"), "make test-long chooses property tests by this marker"
        collected()
        return tried

    yield collect_and_run
    settings.load_profile(current)


def test_a_third_of_the_examples_is_tried_the_same_ones_each_time(try_examples: Try) -> None:
    first, again = try_examples("short"), try_examples("short")
    assert len(first) == 11
    assert again == first


def test_the_long_profile_tries_all_examples_others_each_time(try_examples: Try) -> None:
    first, again = try_examples("long"), try_examples("long")
    assert len(first) == len(again) == 31
    assert again != first
