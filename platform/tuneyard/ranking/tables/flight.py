"""One batch between the ranks, from the exchange of its id counts to that of its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tuneyard.ranking.tables.exchange import Awaited, Exchange
from tuneyard.ranking.tables.owned import OwnedRows
from tuneyard.ranking.tables.routes import Sent


class Flight:
    """The exchanges of one batch: numbers of ids, ids, embeddings, and gradients on the way back.

    `key`: tensors by which `begin` recognises the batch; `advance`: called when gradients are in flight, for the batches ahead.
    """

    def __init__(
        self,
        owned: Sequence[OwnedRows],
        exchange: Exchange,
        sents: Sequence[Sent],
        key: list[torch.Tensor],
        advance: Callable[[], None],
    ) -> None:
        self.key, self.sents = key, sents
        self._owned, self._exchange, self._advance = owned, exchange, advance
        self._ids_to = [[sent.ids[rank] for sent in sents] for rank in range(exchange.ranks)]
        self._bags_to = [[sent.bags[rank] for sent in sents] for rank in range(exchange.ranks)]
        counts = torch.tensor([self._ids_to, self._bags_to], device=sents[0].codes.device).transpose(0, 1).contiguous()
        even = [[1]] * exchange.ranks
        self._counts = exchange.start([counts], even, even)
        self._ids: Awaited | None = None
        self._ids_from: list[list[int]] = []
        self._bags_from: list[list[int]] = []
        self._codes: list[torch.Tensor] = []
        self._vectors: Awaited | None = None

    def send_ids(self) -> Awaited:
        """Send the ids, after their numbers have arrived."""
        if self._ids is None:
            counts = self._counts.wait()[0].tolist()
            self._ids_from, self._bags_from = ([each[kind] for each in counts] for kind in (0, 1))
            self._ids = self._exchange.start([sent.codes for sent in self.sents], self._ids_to, self._ids_from)
        return self._ids

    def look_up(self) -> None:
        """Look up the embeddings that other ranks asked for, and start to send them."""
        codes = self.send_ids().wait()
        self._codes = [each.to(owned.weights.device) for each, owned in zip(codes, self._owned, strict=True)]
        found = [
            owned.found(each, bags).to(self.sents[0].codes.device)
            for each, owned, bags in zip(self._codes, self._owned, map(sum, zip(*self._bags_from, strict=True)), strict=True)
        ]
        self._vectors = self._exchange.start_vectors(found, self._bags_from, self._bags_to)

    def embeddings(self) -> list[torch.Tensor]:
        """[bags, width] of each width, with a gradient if torch records one."""
        if not torch.is_grad_enabled():
            return self.arrived()
        anchor = torch.zeros((), requires_grad=True, device=self.sents[0].codes.device)
        return list(_Embeddings.apply(anchor, self))

    def arrived(self) -> list[torch.Tensor]:
        assert self._vectors is not None
        vectors, self._vectors = self._vectors.wait(), None
        return [_in_place(sent, each) for sent, each in zip(self.sents, vectors, strict=True)]

    def send_gradients(self, gradients: Sequence[torch.Tensor]) -> None:
        sent = [_as_sent(sent, each) for sent, each in zip(self.sents, gradients, strict=True)]
        arriving = self._exchange.start_vectors(sent, self._bags_to, self._bags_from)
        for at, (owned, codes) in enumerate(zip(self._owned, self._codes, strict=True)):
            owned.expect(codes, sum(counts[at] for counts in self._bags_from), arriving.only(at))
        self._advance()


class _Embeddings(torch.autograd.Function):  # type: ignore[misc]
    """Embeddings of a flight. The first argument makes torch record them."""

    @staticmethod
    def forward(ctx: Any, _anchor: torch.Tensor, flight: Flight) -> tuple[torch.Tensor, ...]:
        ctx.flight = flight
        return tuple(flight.arrived())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, None]:
        ctx.flight.send_gradients(gradients)
        return None, None


def _in_place(sent: Sent, vectors: torch.Tensor) -> torch.Tensor:
    """Sums of bags from their owners -> the embedding of each bag of the batch."""
    found = vectors if sent.gathering is None else sent.gathering.gathered(vectors)
    return found if sent.scale is None else found * sent.scale


def _as_sent(sent: Sent, gradients: torch.Tensor) -> torch.Tensor:
    """The reverse."""
    scaled = gradients if sent.scale is None else gradients * sent.scale
    return scaled.contiguous() if sent.gathering is None else sent.gathering.spread(scaled)
