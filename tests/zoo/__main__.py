"""`python -m tests.zoo [MODEL_TYPE ...]`: look at these architectures again (default: all), and write docs/reference/models.md."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from tests.zoo.findings import PARTS, keep, read
from tests.zoo.page import page, today
from tests.zoo.runs import examined

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"


def main() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("model_types", nargs="*", metavar="MODEL_TYPE")
    for model_type in parser.parse_args().model_types or MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        began = time.monotonic()
        found = examined(model_type)
        keep(found)
        print(f"{model_type} {time.monotonic() - began:.0f} s", *_lines(found), sep="\n  ", flush=True)
    PAGE.write_text(page(list(read().values()), today()))


def _lines(found: dict[str, Any]) -> list[str]:
    figures = {name: found.get(name) for name in ("first_loss", "reload", "stops", "exact", "generator", "sized", "vllm", "seconds")}
    return [f"{name} {found[name]['status']}: {found[name]['words']}" for name in PARTS if found.get(name)] + [str(figures)]


if __name__ == "__main__":
    main()
