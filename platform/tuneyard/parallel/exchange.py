"""Averages buckets of gradients over a group of ranks during backward, plain or in 8 bits.

`start` is called for each bucket as soon as backward has filled it, in the same order on every rank. `finish` is called before the
optimizer reads the gradients. Plain buckets are asynchronous all-reduces. Compressed buckets need two collectives with arithmetic between
them, which one thread runs in order. Nothing else uses the group, so its collectives have the same order on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.distributed as dist

from tuneyard.parallel.compressed import FORMATS, CompressedAllReduce, ring_bytes

Quantised = Literal["none", "int8", "fp8"]


@dataclass
class GradientExchange:
    """Averages gradients over `group`. With `inside`, compressed buckets are scattered over the ranks of a host, exchanged with the ranks
    of other hosts in `group`, and gathered inside the host. `unit`: see `CompressedAllReduce`.

    Errors of a collective are raised by `finish`.
    """

    group: Any
    quantised: Quantised = "none"
    inside: Any = None
    unit: Callable[[], float] = lambda: 1.0
    plain_bytes: int = 0
    _under_way: list[tuple[Any, torch.Tensor, Sequence[torch.Tensor]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._compressed = None if self.quantised == "none" else CompressedAllReduce(self.group, FORMATS[self.quantised], unit=self.unit)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gradient-exchange") if self._compressed else None
        self._stream: Any = None

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has sent so far, without the overhead of the transport."""
        return self._compressed.bytes_sent if self._compressed else self.plain_bytes

    def start(self, content: Hashable, parts: Sequence[torch.Tensor]) -> None:
        """Start to average `parts` over the group, in place; the next `finish` completes it. `content` identifies them across steps."""
        if not parts:
            return
        flat = torch.cat([part.view(-1) for part in parts])
        self._under_way.append((self._begin(len(self._under_way), content, flat), flat, parts))

    def _begin(self, slot: int, content: Hashable, flat: torch.Tensor) -> Any:
        if self._thread is None:
            self.plain_bytes += ring_bytes(flat.numel(), flat.element_size(), dist.get_world_size(self.group))
            flat.div_(dist.get_world_size(self.group))
            return dist.all_reduce(flat, group=self.group, async_op=True)
        return self._thread.submit(self._compress, slot, content, flat, _ready(flat))

    def average_bucket(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """A communication hook of DDP, for compressed exchanges: a future with the bucket's mean."""
        assert self._thread is not None
        flat = bucket.buffer()
        devices = [flat.device] if flat.is_cuda else None
        mean: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
        content = tuple(id(parameter) for parameter in bucket.parameters())

        def compress(slot: int, ready: Any) -> None:
            try:
                self._compress(slot, content, flat, ready, lambda: mean.set_result(flat))
            except Exception as error:  # noqa: BLE001 - DDP raises it where it waits
                mean.set_exception(error)

        self._thread.submit(compress, bucket.index(), _ready(flat))
        return mean

    def finish(self) -> None:
        """Wait for all started exchanges."""
        under_way, self._under_way = self._under_way, []
        for work, flat, parts in under_way:
            if isinstance(work, Future):
                done = work.result()
                if done is not None:
                    torch.cuda.current_stream().wait_event(done)
            else:
                work.wait()
            for part, mean in zip(parts, flat.split([part.numel() for part in parts]), strict=True):
                part.copy_(mean.view_as(part))

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _compress(self, slot: int, content: Hashable, flat: torch.Tensor, ready: Any, then: Callable[[], None] = lambda: None) -> Any:
        assert self._compressed is not None
        if flat.is_cuda and self._stream is None:
            self._stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(self._stream) if flat.is_cuda else nullcontext():
            if ready is not None:
                self._stream.wait_event(ready)
                flat.record_stream(self._stream)
            if self.inside is None:
                self._compressed(flat, slot, content)
            else:
                self._through_host(self._compressed, flat, slot, content)
            then()
            return self._stream.record_event() if flat.is_cuda else None

    def _through_host(self, compressed: CompressedAllReduce, flat: torch.Tensor, slot: int, content: Hashable) -> None:
        """Each rank of a host sends one share of the bucket over the network, so that no byte crosses it twice."""
        ranks = dist.get_world_size(self.inside)
        share = -(-flat.numel() // ranks)
        whole = flat.new_zeros(ranks * share)
        whole[: flat.numel()].copy_(flat).div_(ranks)
        own = flat.new_empty(share)
        dist.reduce_scatter_tensor(own, whole, group=self.inside)
        compressed(own, slot, content)
        dist.all_gather_into_tensor(whole, own, group=self.inside)
        flat.copy_(whole[: flat.numel()])


def _ready(flat: torch.Tensor) -> Any:
    """On a GPU, the event after which `flat` is complete."""
    return torch.cuda.current_stream().record_event() if flat.is_cuda else None
