"""Writes a placement of the scheduler in the form of a job's status. Pure."""

from __future__ import annotations

from tuneyard.api import Cluster, PlacementStatus
from tuneyard.federation import Ask, Place, own_sku


def guessed_s(place: Place, ask: Ask) -> float | None:
    """Seconds of a placement by the author's own guess, before any correction; None without such a guess. `ask`: the uncorrected ask."""
    return place.seconds * ask.seconds / place.ask.seconds if ask.basis == "given" and place.ask.seconds > 0 else None


def placement_of(place: Place, cluster: Cluster | None = None, guess_s: float | None = None) -> PlacementStatus:
    """The placement with the Cluster's own name of the SKU and its price; with the catalog's name and no price if there is no Cluster."""
    name = own_sku(cluster, place.sku) if cluster is not None else place.sku
    sku = next((sku for sku in cluster.spec.skus if sku.name == name), None) if cluster is not None else None
    return PlacementStatus(
        cluster=place.cluster,
        sku=name,
        workers=max(1, place.workers // place.ask.unit) if place.ask.engines else max(1, place.workers),
        gpus=place.workers,
        pods=place.pods,
        nodes=dict(place.nodes),
        price_per_gpu_hour=sku.price_per_gpu_hour if sku is not None else 0.0,
        seconds=round(place.seconds, 1),
        seconds_from=place.ask.basis,
        guessed_seconds=round(guess_s, 1) if guess_s is not None else None,
    )
