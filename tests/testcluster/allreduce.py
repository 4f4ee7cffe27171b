"""What the harness runs on a Ray cluster to show that its pods work together: a process in each pod, and one all-reduce across them.

Run as a RayJob's entry point, with the number of pods.
"""

from __future__ import annotations

import sys
from typing import Any

import ray


@ray.remote(num_cpus=0, resources={"pod": 1})
class Rank:
    def address(self) -> str:
        return str(ray.util.get_node_ip_address())

    def add_up(self, rank: int, world: int, address: str) -> float:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=f"tcp://{address}:29500", rank=rank, world_size=world)
        number = torch.tensor([float(rank + 1)])
        dist.all_reduce(number)
        return float(number.item())


def main(world: int) -> None:
    ray.init()
    actor: Any = Rank
    ranks = [actor.remote() for _ in range(world)]
    addresses = ray.get([rank.address.remote() for rank in ranks])
    assert len(set(addresses)) == world, f"several ranks in one pod: {addresses}"
    sums = ray.get([rank.add_up.remote(number, world, addresses[0]) for number, rank in enumerate(ranks)])
    assert sums == [world * (world + 1) / 2] * world, sums
    print(f"all-reduce over {world} pods: {sums[0]}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
