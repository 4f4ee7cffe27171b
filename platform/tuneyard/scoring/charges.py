"""The charges of endpoints for one attempt at a score task, whether it succeeds, fails or is stopped. Each token is charged once.

1. A worker counts all tokens that its endpoints have charged for. The sums of a committed part hold the part's tokens. When a worker is
   closed, it returns `Spent` of all others.
2. `charged.json` holds the tokens of all parts that earlier attempts were charged for. `charge` subtracts them from the tokens of all
   committed parts, so that a part of a killed attempt is charged to the next one. Where this record is damaged, an attempt is charged for
   the parts that it has committed itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import reduce

from tuneyard.api import Endpoint
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.request import ScoreRequest
from tuneyard.scoring.rows import UNPAID, Paid
from tuneyard.storage import Store

CHARGED = "charged.json"
_MILLION = 1e6


@dataclass(frozen=True)
class Spent:
    """Tokens for which the endpoint of a task, and that of its embeddings, charge."""

    answers: Paid = UNPAID
    embeddings: Paid = UNPAID

    @classmethod
    def of(cls, sums: Sums) -> Spent:
        """The tokens of committed parts."""
        return cls(
            Paid(sums.paid_input_tokens, sums.paid_output_tokens, sums.uncounted_answers),
            Paid(sums.embedded_tokens, 0, sums.uncounted_embeddings),
        )

    def plus(self, other: Spent) -> Spent:
        return Spent(self.answers.plus(other.answers), self.embeddings.plus(other.embeddings))

    def minus(self, other: Spent) -> Spent:
        return Spent(self.answers.minus(other.answers), self.embeddings.minus(other.embeddings))

    def at_least_0(self) -> Spent:
        return Spent(self.answers.at_least_0(), self.embeddings.at_least_0())


def has_price(request: ScoreRequest) -> bool:
    """Whether an endpoint of the task has a price."""
    return any(endpoint is not None and endpoint.price is not None for endpoint in _endpoints(request))


def charge(request: ScoreRequest, store: Store, earlier: Iterable[Sums], new: Iterable[Sums], beside: Iterable[Spent]) -> float:
    """The charge for this attempt. `earlier`, `new`: the sums of the parts that were committed before it, and since it began; `beside`:
    tokens of this attempt in none of them.

    Raises StorageError. Parts are recorded as charged before the charge is told, so that none is charged twice.
    """
    before, since = _sum(map(Spent.of, earlier)), _sum(map(Spent.of, new))
    total = before.plus(since)
    charged = _charged_before(store)
    store.put(CHARGED, json.dumps(asdict(total)).encode())
    spent = total.minus(charged).at_least_0() if charged is not None else since  # below 0 where somebody has removed a part
    return cost_of(request, spent.plus(_sum(beside)))


def charge_beside(request: ScoreRequest, beside: Iterable[Spent]) -> float:
    """The charge for the tokens of no part, which needs no record."""
    return cost_of(request, _sum(beside))


def _sum(each: Iterable[Spent]) -> Spent:
    return reduce(Spent.plus, each, Spent())


def cost_of(request: ScoreRequest, spent: Spent) -> float:
    """The price of tokens; those of an endpoint without a price cost nothing."""
    cost = 0.0
    for endpoint, paid in zip(_endpoints(request), (spent.answers, spent.embeddings), strict=True):
        if endpoint is not None and endpoint.price is not None:
            cost += max(0, paid.input_tokens) * endpoint.price.input + max(0, paid.output_tokens) * endpoint.price.output
    return cost / _MILLION


def _endpoints(request: ScoreRequest) -> tuple[Endpoint | None, Endpoint | None]:
    embedding = request.task.embedding
    return request.task.engine.endpoint, embedding.endpoint if embedding is not None else None


def _charged_before(store: Store) -> Spent | None:
    """The tokens of the parts that earlier attempts were charged for; None where the record is damaged."""
    if not store.exists(CHARGED):
        return Spent()
    try:
        values = json.loads(store.get(CHARGED))
        found = [Paid(**values[name]) for name in ("answers", "embeddings")]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    counts = [count for paid in found for count in (paid.input_tokens, paid.output_tokens, paid.unknown)]
    return Spent(*found) if all(type(count) is int and count >= 0 for count in counts) else None
