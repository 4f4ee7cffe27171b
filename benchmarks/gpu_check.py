"""The check of a GPU: a few steps of training in each form, measured beside what the planner predicts, in eight minutes.

`python benchmarks/gpu_check.py`: docs/gpu-check.md says how it is run and what it tells. `--second` tries changes that are not the default,
and `--predict SKU` prints the predictions. TUNEYARD_CHECK_CPU=1 tries the check itself on a CPU, with tiny shapes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks.gpu.cases import REHEARSAL, cases_of  # noqa: E402 - found by the line above
from benchmarks.gpu.predictions import table_of  # noqa: E402
from benchmarks.gpu.report import report, report_trials  # noqa: E402
from benchmarks.gpu.results import MODELS, OUT, RESULTS, WORK, first_line, tell, told  # noqa: E402
from benchmarks.gpu.runner import FRESH, SECOND, SECTIONS, Runner  # noqa: E402

from tuneyard.api import BadInput  # noqa: E402 - found by the line above
from tuneyard.catalog import gpu  # noqa: E402

BUDGET_S = 480.0


def main() -> int:
    names = [section.name for section in (*SECTIONS, *SECOND)]
    parser = argparse.ArgumentParser(description="Measure a GPU beside what the planner predicts.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"by default all of {', '.join(names[: len(SECTIONS)])}")
    parser.add_argument("--second", action="store_true", help=f"the second part: {', '.join(names[len(SECTIONS) :])}")
    parser.add_argument("--predict", metavar="SKU", help="print the predictions for a kind of GPU")
    parser.add_argument("--section", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.predict:
        return predict(options.predict)
    if unknown := set(options.sections) - set(names):
        parser.error(f"there is no section {', '.join(sorted(unknown))}; the sections are {', '.join(names)}")
    if options.section:
        code = run_section(options.section)
        sys.stdout.flush()
        os._exit(code)  # threads of libraries would hold the process up for seconds
    if not REHEARSAL and not shutil.which("nvidia-smi"):
        print("not measured: no GPU. TUNEYARD_CHECK_CPU=1 rehearses the check, and --predict SKU says what a kind of GPU should show")
        return 0
    for folder in (OUT, WORK):
        folder.mkdir(parents=True, exist_ok=True)
    RESULTS.unlink(missing_ok=True)
    part = SECOND if options.second else SECTIONS
    chosen = tuple(section for section in (*SECTIONS, *SECOND) if section.name in options.sections)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # with its sections, and with the report
    try:
        Runner([sys.executable, __file__, "--section"], float(os.environ.get("BUDGET_S", BUDGET_S))).run(chosen or part)
    finally:
        print(report_trials(told()) if options.second else report(told(), judged=not REHEARSAL))
        shutil.rmtree(MODELS, ignore_errors=True)
    return 0


def predict(sku: str) -> int:
    try:
        if gpu(sku).is_cpu:
            raise BadInput("the cases of the check are for GPUs", "name a kind of GPU: h100-80gb")
        print(table_of(sku))
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def run_section(name: str) -> int:
    """The section in this process. FRESH: its other cases need another process."""
    if not cases_of(name):
        _run_other(name)
        return 0
    from benchmarks.gpu.training import NotHere, is_clean, measure

    done = {row.get("case") for row in told()}
    for case in cases_of(name):
        if case.name in done:
            continue
        try:
            tell(name, **measure(case))
        except NotHere as error:
            tell(name, case=case.name, skipped=str(error))
        except Exception as error:  # noqa: BLE001 - each is a row of the report
            tell(name, case=case.name, error=first_line(error))
            return FRESH
        if not is_clean():
            return FRESH
    return 0


def _run_other(name: str) -> None:
    if name in {section.name for section in SECOND}:
        from benchmarks.gpu.trials import TRIALS, find_largest, run_trial

        (run_trial if name in {trial.name for trial in TRIALS} else find_largest)(name)
    else:
        from benchmarks.gpu.sections import RUN

        RUN[name]()


if __name__ == "__main__":
    sys.exit(main())
