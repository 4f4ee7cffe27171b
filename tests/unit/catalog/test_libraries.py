"""What a rank holds before it loads a model: kept for the next plan, whatever lies in the cache folder."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuneyard.catalog.libraries import keep_libraries_gb, measured_libraries_gb


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tuneyard"


def test_the_last_measurement_is_kept() -> None:
    assert measured_libraries_gb() is None
    assert keep_libraries_gb(0.61)
    assert keep_libraries_gb(0.58)
    assert measured_libraries_gb() == 0.58


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 65.0])
def test_what_is_no_measurement_is_not_kept(value: float) -> None:
    assert not keep_libraries_gb(value)
    assert measured_libraries_gb() is None


def test_other_versions_are_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_libraries_gb(0.58)
    monkeypatch.setattr("tuneyard.catalog.libraries.version", lambda _name: "99.0")
    assert measured_libraries_gb() is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=60)
    | st.sampled_from([b"[]", b"{}", b'{"libraries_gb": true}', b'{"libraries_gb": "1"}', b'{"libraries_gb": 1e999}'])
)
def test_a_damaged_file_counts_as_none(cache: Path, content: bytes) -> None:
    keep_libraries_gb(0.58)
    (file,) = cache.glob("libraries-*.json")
    file.write_bytes(content)
    assert measured_libraries_gb() is None


def test_a_folder_that_cannot_be_written_only_costs_the_measurement(cache: Path) -> None:
    cache.write_text("in the way")
    assert not keep_libraries_gb(0.58)
    assert measured_libraries_gb() is None
