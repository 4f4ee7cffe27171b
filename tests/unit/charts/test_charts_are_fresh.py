"""What is generated in the charts is what the code says, and all that is generated is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.charts import CHARTS, REPOSITORY, generated

GENERATED = generated()


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_the_file_is_fresh(path: Path) -> None:
    assert path.read_text() == GENERATED[path], "run `make charts` and commit the result"


@pytest.mark.parametrize("chart", ["tuneyard-hub", "tuneyard-member"])
def test_no_crd_of_a_removed_kind_is_left(chart: str) -> None:
    assert set((CHARTS / chart / "files" / "crds").iterdir()) <= set(GENERATED)


def test_the_versions_are_the_packages() -> None:
    import tomllib

    import yaml

    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    for chart in ("tuneyard-hub", "tuneyard-member"):
        text = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text())
        assert (text["version"], text["appVersion"]) == (version, version)
        assert all(each["version"] == version for each in text.get("dependencies", []))
