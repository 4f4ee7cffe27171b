"""The same models split over the same ranks by others: DeepSpeed's Ulysses, and torch's ring attention as accelerate uses it.

Each takes rows whose length the ranks divide, full rows or packed ones, and is compared with one process: loss and every gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.ranks.context_models import SEED, Difference, batch_of, compared
from tests.ranks.forks import Call, called
from tests.ranks.groups import group
from tests.zoo.configs import tiny_config_of

from tuneyard.parallel.context import row_slice, targets
from tuneyard.training.context import slice_loss

Batch = dict[str, Any]
TOKENS = 32
_WORDS = 110


def peer_difference(peer: str, model_type: str, ranks: int, *, packed: bool) -> Difference:
    """In processes of its own: peers replace functions of transformers and torch."""
    places = group(ranks, per_machine=ranks)
    try:
        found: Difference = called([Call(_rank, (peer, model_type, packed), place) for place in places])[0]
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if "Error" in line]
        return Difference(model_type, ranks, refused=(lines or [str(error)])[-1][:_WORDS])
    return found


def _rank(peer: str, model_type: str, packed: bool) -> Difference:
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM

    dist.init_process_group("gloo")
    batch = batch_of(TOKENS, packed=packed)
    if not packed:
        batch = {"input_ids": batch["input_ids"], "labels": batch["input_ids"].clone()}
    torch.manual_seed(SEED)
    model = AutoModelForCausalLM.from_config(tiny_config_of(model_type), attn_implementation="sdpa")
    model.config.use_cache = False
    expected = _gradients(model, lambda: _whole_loss(model, batch), together=False)
    found = _gradients(model, PEERS[peer](model, batch), together=True)
    ranks = dist.get_world_size()
    dist.destroy_process_group()
    return compared(model_type, ranks, expected, found)


def _gradients(model: Any, loss_of: Callable[[], torch.Tensor], *, together: bool) -> tuple[float, dict[str, torch.Tensor]]:
    import torch.distributed as dist

    model.zero_grad()
    loss = loss_of()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    if together:
        for tensor in (loss, *gradients.values()):
            dist.all_reduce(tensor)
    return float(loss), gradients


def _counted(batch: Batch) -> torch.Tensor:
    return (batch["labels"][:, 1:] != -100).sum()


def _whole_loss(model: Any, batch: Batch) -> torch.Tensor:
    labels = torch.nn.functional.pad(batch["labels"], (0, 1), value=-100)
    loss = slice_loss(model(**{name: value for name, value in batch.items() if name != "labels"}), labels, _counted(batch))
    loss.backward()
    return loss.detach()


def _ulysses(model: Any, batch: Batch) -> Callable[[], torch.Tensor]:
    import torch.distributed as dist
    from deepspeed import init_distributed
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

    init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    ranks = dist.get_world_size()
    UlyssesSPAttentionHF.register_with_transformers(model, "sdpa", ranks, micro_batch_size=batch["input_ids"].shape[0])
    sliced = row_slice(batch, dist.get_rank(), ranks)

    def loss_of() -> torch.Tensor:
        outputs = model(input_ids=sliced["input_ids"], position_ids=sliced["position_ids"])
        loss = slice_loss(outputs, sliced["labels"], _counted(batch))
        loss.backward()
        return loss.detach()

    return loss_of


def _ring(model: Any, batch: Batch) -> Callable[[], torch.Tensor]:
    import torch.distributed as dist
    from accelerate.big_modeling import _attach_context_parallel_hooks
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("cp",))
    _attach_context_parallel_hooks(model)
    ids = batch["input_ids"].clone()
    positions = batch.get("position_ids", torch.arange(ids.shape[1]).expand_as(ids)).clone()
    following = targets(torch.nn.functional.pad(batch["labels"], (0, 1), value=-100))

    def loss_of() -> torch.Tensor:
        buffers = [ids, positions, following]
        with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1, 1, 1], no_restore_buffers=set(buffers)):
            outputs = model(input_ids=ids, position_ids=positions, attention_mask=torch.ones_like(ids))
            loss = slice_loss(outputs, torch.nn.functional.pad(following, (1, 0), value=-100), _counted(batch))
            loss.backward()
        return loss.detach()

    return loss_of


PEERS: dict[str, Callable[[Any, Batch], Callable[[], torch.Tensor]]] = {"ulysses": _ulysses, "ring": _ring}
