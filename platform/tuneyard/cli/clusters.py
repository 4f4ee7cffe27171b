"""`tuneyard clusters`: the members that run jobs, and what is free there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import typer

from tuneyard.cli.hub_options import ContextOption, KubeconfigOption
from tuneyard.cli.job_figures import age, seconds_since
from tuneyard.cli.output import Format, OutputOption, print_json, print_table
from tuneyard.cluster import Capacity, HubCluster, open_hub

COLUMNS = ("name", "healthy", "sku", "free", "total", "price_per_hour", "heartbeat", "cordoned", "message")


def clusters(context: ContextOption = None, kubeconfig: KubeconfigOption = None, output: OutputOption = Format.TABLE) -> None:
    """List the clusters of the hub: one line per kind of GPU, with what is free (worker slots on cpu).

    Example: tuneyard clusters -o json
    """
    found = open_hub(context=context, kubeconfig=kubeconfig).clusters()
    now = datetime.now(UTC)
    if output is Format.JSON:
        print_json([_facts(cluster, now) for cluster in found])
    elif found:
        print_table(COLUMNS, [row for cluster in found for row in rows(cluster, now)])
    else:
        typer.echo("the hub has no clusters yet: add one as docs/install.md says")


def rows(cluster: HubCluster, now: datetime) -> list[dict[str, Any]]:
    """One row per SKU; what holds for the whole cluster stands in the first."""
    whole = {
        "name": cluster.name,
        "healthy": cluster.healthy,
        "heartbeat": f"{age(seconds_since(cluster.heartbeat, now))} ago" if cluster.heartbeat else "never",
        "cordoned": cluster.cordoned,
        "message": cluster.message.partition("\n")[0] or None,
    }
    nothing = dict.fromkeys(whole, "")
    return [{**(nothing if index else whole), **_capacity(sku)} for index, sku in enumerate(cluster.capacity)] or [whole]


def _capacity(sku: Capacity) -> dict[str, Any]:
    return {"sku": sku.sku, "free": sku.free, "total": sku.total, "price_per_hour": sku.price_per_gpu_hour or None}


def _facts(cluster: HubCluster, now: datetime) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "healthy": cluster.healthy,
        "cordoned": cluster.cordoned,
        "skus": [
            {"sku": sku.sku, "free": sku.free, "total": sku.total, "price_per_gpu_hour": sku.price_per_gpu_hour} for sku in cluster.capacity
        ],
        "heartbeat": cluster.heartbeat.isoformat() if cluster.heartbeat else None,
        "heartbeat_age_s": round(seconds_since(cluster.heartbeat, now)) if cluster.heartbeat else None,
        "message": cluster.message,
    }
