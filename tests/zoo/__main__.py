"""`python -m tests.zoo [MODEL_TYPE ...]`: look at these architectures again (default: all), and write docs/reference/models.md."""

from __future__ import annotations

import argparse
import time
from typing import Any

from tests.zoo.engines import MOST_USED, same_answers, vllm_knows
from tests.zoo.findings import PARTS, keep, read
from tests.zoo.page import PAGE, page, today
from tests.zoo.runs import examined


def main() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("model_types", nargs="*", metavar="MODEL_TYPE")
    parser.add_argument("--engine", action="store_true", help="start vLLM with each of them (default: with the most used) instead")
    given = parser.parse_args()
    if given.engine:
        for model_type in given.model_types or MOST_USED:
            same = same_answers(model_type)
            keep(read()[model_type] | {"engine": same})
            print(f"{model_type} {same}", flush=True)
    else:
        _examine(given.model_types or list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
    PAGE.write_text(page(list(read().values()), today()))


def _examine(model_types: list[str]) -> None:
    for model_type in model_types:
        began = time.monotonic()
        found = examined(model_type)
        found["vllm"] = vllm_knows(found.get("model_class", ""))
        keep(found)
        print(f"{model_type} {time.monotonic() - began:.0f} s", *_lines(found), sep="\n  ", flush=True)


def _lines(found: dict[str, Any]) -> list[str]:
    figures = {name: found.get(name) for name in ("first_loss", "reload", "stops", "exact", "generator", "sized", "vllm", "seconds")}
    return [f"{name} {found[name]['status']}: {found[name]['words']}" for name in PARTS if found.get(name)] + [str(figures)]


if __name__ == "__main__":
    main()
