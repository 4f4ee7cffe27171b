"""Artifacts of a rank task: the ranker's folder, which `tuneyard.ranking.load` reads. Tables are sent to rank 0 one at a time."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from tuneyard.ranking import table_names, write_ranker, write_table
from tuneyard.storage import open_store
from tuneyard.training.artifacts import MODEL, Artifacts, gathered_weights
from tuneyard.training.distributed import World
from tuneyard.training.first_rank import write_on_first
from tuneyard.training.program.module import MODEL_PREFIX
from tuneyard.training.rank.trainer import RankTrainer
from tuneyard.training.request import TrainRequest


def save_ranker(trainer: RankTrainer, request: TrainRequest, world: World, card: str) -> Artifacts:
    """Write the ranker below the task's output. Collective. Raises StorageError on every rank if rank 0 could not write."""
    folder = Path(request.scratch) / "final" / MODEL
    if world.is_first:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    features = [feature.name for feature in trainer.module.model.config.sparse]
    for number, (feature, name) in enumerate(table_names(features).items()):
        table = trainer.tables.gathered(feature)
        write_on_first(world, partial(write_table, folder, number, f"features.tables.{name}", table), what=f"the table of {feature}")
    gathered = gathered_weights(trainer, request)

    def finish() -> None:
        ranker = trainer.module.model
        whole = gathered if gathered is not None else trainer.module.state_dict()
        dense = {name: whole[f"{MODEL_PREFIX}{name}"].detach().cpu().float() for name in ranker.state_dict()}
        write_ranker(folder, ranker.config, dense)
        (folder / "README.md").write_text(card)
        open_store(request.output).commit_folder(folder, MODEL)

    write_on_first(world, finish, what="the ranker")
    return Artifacts(open_store(request.output).url(MODEL), None, None)
