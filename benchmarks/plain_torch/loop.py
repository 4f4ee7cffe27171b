"""The training loop that a user of plain torch writes around the same model, batches and loss: several processes, checkpoints, resume,
evaluation, predictions. `torchrun --nproc-per-node 2 benchmarks/plain_torch/loop.py clicks:Clicks DATA OUT` runs it.

It has no more than it must: DDP alone, one file per checkpoint, no report, no MFU, no retries. `program_lines.py` counts its lines.
"""

import argparse
import functools
import hashlib
import importlib
import itertools
import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Row(dict):
    place = 0

    def generator(self):
        seed = hashlib.sha256(f"42/{self.place}".encode()).digest()[:7]
        return torch.Generator().manual_seed(int.from_bytes(seed, "little"))


class Loss(nn.Module):
    """DDP reduces after one forward pass of what it wraps: the loss is that pass."""

    def __init__(self, program, model):
        super().__init__()
        self.model = model
        self.program = program

    def forward(self, batch):
        return self.program.loss(self.model, batch)


class Loop:
    def __init__(self, program, options):
        self.program, self.options = program, options
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.share = options.batch // self.world
        if options.batch % self.world:
            raise SystemExit(f"a batch of {options.batch} does not divide over {self.world} processes")
        rows = pq.read_table(options.data).to_pylist()
        aside = [int(hashlib.sha256(repr(row).encode()).hexdigest(), 16) % 10 == 0 for row in rows]
        self.train = [row for row, is_aside in zip(rows, aside, strict=True) if not is_aside]
        self.held_out = [row for row, is_aside in zip(rows, aside, strict=True) if is_aside]
        torch.manual_seed(42)
        self.module = Loss(program, program.model())
        self.wrapped = DistributedDataParallel(self.module)
        trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=options.rate, weight_decay=0.0)
        self.losses = []

    def run(self):
        for step in range(self.resume(), self.options.steps):
            first = step * self.options.batch + self.rank * self.share
            batch, count = self.batch_of([self.row_at(place) for place in range(first, first + self.share)])
            total = torch.tensor(float(count))
            dist.all_reduce(total)
            loss = self.wrapped(batch) * count / total
            self.optimizer.zero_grad()
            (loss * self.world).backward()
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
            self.optimizer.step()
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            self.losses.append(float(shown))
            if not math.isfinite(self.losses[-1]):
                raise SystemExit(f"the loss became {self.losses[-1]} at step {step + 1}")
            if (step + 1) % self.options.every == 0 or step + 1 == self.options.steps:
                self.save(step + 1)
                evaluated = self.evaluate()
                if self.rank == 0:
                    print(f"step {step + 1}  loss {self.losses[-1]:.4f}  held-out loss {evaluated:.4f}", flush=True)
        self.predict()

    def row_at(self, place):
        epoch, inside = divmod(place, len(self.train))
        return self.row(self.train[order(len(self.train), epoch)[inside]], f"train/{place}")

    def row(self, values, place):
        row = Row(values)
        row.place = place
        return row

    def batch_of(self, rows):
        batch = dict(self.program.collate(rows))
        return batch, float(batch.pop("count", len(rows)))

    def save(self, step):
        if self.rank == 0:
            state = {"model": self.module.state_dict(), "optimizer": self.optimizer.state_dict(), "losses": self.losses, "step": step}
            torch.save(state, self.options.out / "partial")
            os.replace(self.options.out / "partial", self.options.out / f"step-{step:06d}.pt")
        dist.barrier()

    def resume(self):
        saved = sorted(self.options.out.glob("step-*.pt"))
        if not saved:
            return 0
        state = torch.load(saved[-1], weights_only=False)
        self.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.losses = state["losses"]
        return state["step"]

    def own_batches(self):
        count = len(self.held_out)
        for first in range(self.rank * self.share, count, self.share * self.world):
            places = range(first, min(first + self.share, count))
            yield places, *self.batch_of([self.row(self.held_out[place], f"held out/{place}") for place in places])

    def evaluate(self):
        totals = torch.zeros(2, dtype=torch.float64)
        self.module.eval()
        for _, batch, count in self.own_batches():
            totals += torch.tensor([float(self.module(batch).detach()) * count, count], dtype=torch.float64)
        self.module.train()
        dist.all_reduce(totals)
        return float(totals[0] / totals[1])

    def predict(self):
        self.module.eval()
        own = []
        for places, batch, _ in self.own_batches():
            with torch.no_grad():
                own += zip(places, self.program.predict(self.module.model, batch), strict=True)
        everything = [None] * self.world
        dist.all_gather_object(everything, own)
        if self.rank == 0:
            lines = [json.dumps({"row": place, **each}) for place, each in sorted(itertools.chain(*everything), key=lambda pair: pair[0])]
            (self.options.out / "predictions.jsonl").write_text("\n".join(lines) + "\n")
            (self.options.out / "losses.json").write_text(json.dumps(self.losses))


@functools.lru_cache(maxsize=2)
def order(count, epoch):
    return np.random.default_rng([42, epoch]).permutation(count)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("data", type=Path)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--folder", type=Path, default=Path("jobspecs/programs"))
    arguments.add_argument("--steps", type=int, default=100)
    arguments.add_argument("--batch", type=int, default=32)
    arguments.add_argument("--every", type=int, default=50)
    arguments.add_argument("--rate", type=float, default=0.01)
    options = arguments.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(options.folder))
    module, _, name = options.program.partition(":")
    dist.init_process_group("gloo")
    Loop(getattr(importlib.import_module(module), name)(), options).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
