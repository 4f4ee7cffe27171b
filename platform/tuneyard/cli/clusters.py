"""`tuneyard clusters`: the members, with their free GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import typer

from tuneyard.catalog import canonical_sku
from tuneyard.cli.hub_options import ContextOption, KubeconfigOption
from tuneyard.cli.jobs.figures import seconds_since
from tuneyard.cli.output import Format, OutputOption, print_json, print_table
from tuneyard.cluster import Capacity, HubCluster, NotAllowed, open_hub
from tuneyard.tracking.progress.words import age

Held = Mapping[tuple[str, str], int]
"""Cluster and SKU (the catalog's name) -> GPUs that jobs of the hub hold."""
COLUMNS = ("name", "healthy", "sku", "free", "held", "down", "total", "price_per_hour", "heartbeat", "cordoned", "message")


def clusters(context: ContextOption = None, kubeconfig: KubeconfigOption = None, output: OutputOption = Format.TABLE) -> None:
    """List the clusters of the hub, with a line per kind of GPU: free GPUs, GPUs held by jobs of the hub, and GPUs that are down. On cpu,
    worker slots are counted.

    Example: tuneyard clusters -o json
    """
    hub, now = open_hub(context=context, kubeconfig=kubeconfig), datetime.now(UTC)
    try:
        snapshot = hub.snapshot()
        found, held, note = snapshot.members(), snapshot.held(), snapshot.partial
    except NotAllowed:
        found, held, note = hub.clusters(), Counter(), "GPUs held by jobs are not counted: you may not list jobs"
    if output is Format.JSON:
        print_json([_facts(cluster, held, now) for cluster in found])
    elif found:
        print_table(COLUMNS, [row for cluster in found for row in rows(cluster, held, now)])
        if note:
            typer.echo(f"note: {note}", err=True)
    else:
        typer.echo("the hub has no clusters yet: add one as docs/install.md says")


def rows(cluster: HubCluster, held: Held, now: datetime) -> list[dict[str, Any]]:
    """One row per SKU. Facts about the whole cluster stand in the first."""
    whole = {
        "name": cluster.name,
        "healthy": cluster.healthy,
        "heartbeat": f"{age(seconds_since(cluster.heartbeat, now))} ago" if cluster.heartbeat else "never",
        "cordoned": cluster.cordoned,
        "message": cluster.message.partition("\n")[0] or None,
    }
    nothing = dict.fromkeys(whole, "")
    return [
        {**(nothing if index else whole), **_capacity(cluster, sku, held), "price_per_hour": sku.price_per_gpu_hour or None}
        for index, sku in enumerate(cluster.capacity)
    ] or [whole]


def _capacity(cluster: HubCluster, sku: Capacity, held: Held) -> dict[str, Any]:
    own = held.get((cluster.name, canonical_sku(sku.sku)), 0)
    free = max(0, sku.free - own) if sku.free is not None else None
    return {"sku": sku.sku, "free": free, "held": own, "down": sku.down, "total": sku.total}


def _facts(cluster: HubCluster, held: Held, now: datetime) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "healthy": cluster.healthy,
        "cordoned": cluster.cordoned,
        "skus": [{**_capacity(cluster, sku, held), "price_per_gpu_hour": sku.price_per_gpu_hour} for sku in cluster.capacity],
        "heartbeat": cluster.heartbeat.isoformat() if cluster.heartbeat else None,
        "heartbeat_age_s": round(seconds_since(cluster.heartbeat, now)) if cluster.heartbeat else None,
        "message": cluster.message,
    }
