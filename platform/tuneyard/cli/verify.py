"""`tuneyard verify`: compare a model with its certificate, and train parts of its run again."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuneyard.cli.output import Format, OutputOption, print_json
from tuneyard.extras import need

if TYPE_CHECKING:
    from tuneyard.training.provenance.findings import Finding

_FAILED = 1


def verify(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="the model folder of a train task, or the output of its task or job")],
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="public key of the signature that the model must have (PEM)")] = None,
    replay: Annotated[int, typer.Option(min=0, help="stretches between kept checkpoints to train again, chosen at random")] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="ranks of a replay on this machine; default: as many as the run had")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="of the choice of stretches; default: another one each time")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run Python code that comes with the model, if its run did")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> int:
    """Compare a model with the certificate in its folder (provenance.json): files, base, data, checkpoints, weights and losses.

    With --replay, train stretches of its run again, from one kept checkpoint to the next, and compare the weights: bit for bit in the
    layout of the run, else to rounding. Exit code 1 if anything differs.

    Example: tuneyard verify runs/first/train/model --replay 1
    """
    need("train", "tuneyard verify")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # its import warns of kernels that it would download
    found: list[Finding] = []
    out = sys.stdout
    with tempfile.TemporaryDirectory(prefix="tuneyard-verify-") as scratch, redirect_stdout(sys.stderr):
        for finding in _findings(model, Path(scratch), key, replay, workers, seed, trust_remote_code):
            found.append(finding)
            if output is Format.TABLE:
                print(f"{finding.about:<12} {finding.state:<12} {finding.words}", file=out, flush=True)
    if output is Format.JSON:
        print_json([asdict(finding) for finding in found])
    return _FAILED if any(finding.state == "failed" for finding in found) else 0


def _findings(
    model: str, scratch: Path, key: Path | None, replay: int, workers: int | None, seed: int | None, trust: bool
) -> Iterator[Finding]:
    from tuneyard.training.library_state import clean_libraries
    from tuneyard.training.model_finder import find_place
    from tuneyard.training.provenance.checking import check, open_subject
    from tuneyard.training.provenance.findings import Finding
    from tuneyard.training.provenance.merged import checked_merge
    from tuneyard.training.provenance.replay import replayed, stretches_of
    from tuneyard.training.provenance.signing import check_signature

    model = find_place(model, merged=False)
    merge = checked_merge(model, scratch, trust=trust)
    if merge is not None:
        with clean_libraries():
            yield from merge
        return
    subject = open_subject(model, scratch, trust_remote_code=trust)
    yield check_signature(subject.folder, key)
    changed = []
    with clean_libraries():
        for finding in check(subject, scratch):
            yield finding
            changed += [finding.about] if finding.about in ("base", "data") and finding.state == "failed" else []
    if not replay:
        return
    chosen = stretches_of(subject, replay, seed)
    if changed:
        yield Finding("replay", "not checked", f"{' and '.join(changed)} changed, and training again would say nothing of the model")
    elif subject.needs_code:
        yield Finding("replay", "not checked", "the model comes with Python code: --trust-remote-code runs it")
    elif not chosen:
        yield Finding("replay", "not checked", "no checkpoint of the run is kept beside the model")
    else:
        yield from replayed(subject, chosen, scratch, workers=workers)
