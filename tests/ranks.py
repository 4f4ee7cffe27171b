"""Training in real ranks for tests and benchmarks: torchrun starts them once, and they run one request after the other.

Starting a rank costs many times what a tiny run does; the group is made once, as a launcher such as Ray makes it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tuneyard.api import TuneyardError
from tuneyard.training import TrainRequest, TrainResult, train

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 500


def train_in_ranks(requests: Sequence[TrainRequest], workers: int) -> list[TrainResult | TuneyardError]:
    """What rank 0 answered to each request: its result, or the error that people would see."""
    with tempfile.TemporaryDirectory() as folder:
        given, answered = Path(folder) / "requests.pickle", Path(folder) / "answers.pickle"
        given.write_bytes(pickle.dumps(list(requests)))
        torchrun = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*torchrun, __file__, str(given), str(answered)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the ranks failed:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
        answers: list[TrainResult | TuneyardError] = pickle.loads(answered.read_bytes())
        return answers


def results_in_ranks(requests: Sequence[TrainRequest], workers: int) -> list[TrainResult]:
    """Like `train_in_ranks`, for requests that all succeed; the first error is raised."""
    answers = train_in_ranks(requests, workers)
    for answer in answers:
        if isinstance(answer, TuneyardError):
            raise answer
    return [answer for answer in answers if isinstance(answer, TrainResult)]


def _rank_main(given: Path, answered: Path) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    answers: list[TrainResult | TuneyardError] = []
    for request in pickle.loads(given.read_bytes()):
        try:
            answers.append(train(request))
        except TuneyardError as error:
            answers.append(error)
    if dist.get_rank() == 0:
        answered.write_bytes(pickle.dumps(answers))
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank_main(Path(sys.argv[1]), Path(sys.argv[2]))
