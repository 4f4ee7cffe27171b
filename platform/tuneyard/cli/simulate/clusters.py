"""Clusters and teams for a simulation: manifests as the hub gets them, or the same fields in a short list."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml
from pydantic import Field, ValidationError

from tuneyard.api import API_VERSION, BadInput, Cluster, Fields, Metadata, NodeInventory
from tuneyard.api import Team as TeamManifest
from tuneyard.api.base import Name
from tuneyard.api.cluster import ClusterGoal
from tuneyard.api.loading import parse_documents, read_file
from tuneyard.api.loading_reasons import did_you_mean, explain
from tuneyard.api.loading_yaml import Problem, Tree, read_trees
from tuneyard.api.team import TeamGoal
from tuneyard.federation import Member, Team, member_of, rights_of


class ShortCluster(ClusterGoal):
    """A name beside the fields of a Cluster's spec."""

    name: Name


class ShortTeam(TeamGoal):
    """A name beside the fields of a Team's spec; any name that a trace may hold."""

    name: str = Field(min_length=1)


class ShortFile(Fields):
    clusters: list[ShortCluster] = Field(min_length=1)
    teams: list[ShortTeam] = Field(default_factory=list)


def read_clusters(path: Path) -> tuple[tuple[Member, ...], tuple[Team, ...]]:
    """The members and teams of a file: `kind: Cluster` and `kind: Team` documents, or one document with `clusters:` and `teams:`.

    Raises BadInput with one line per problem, and where no cluster has a GPU.
    """
    text = read_file(path)
    trees, _ = read_trees(text)
    if len(trees) == 1 and isinstance(trees[0].value, dict) and not {"apiVersion", "kind"} & trees[0].value.keys():
        clusters, teams = _short(trees[0], path)
    else:
        clusters, teams = _manifests(text, path)
    members = tuple(_member(name, goal) for name, goal in clusters)
    for what, names in (("clusters", [member.name for member in members]), ("teams", [name for name, _ in teams])):
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise BadInput(f"{path}: two {what} are named {doubled[0]}", "give each a name of its own")
    if not any(node.gpus for member in members for node in member.nodes):
        raise BadInput(f"{path}: none of its clusters has a GPU", "set nodes and gpusPerNode of a SKU")
    return members, tuple(_team(name, goal) for name, goal in teams)


def unmatched_quotas(members: Iterable[Member], teams: Iterable[Team]) -> list[str]:
    """A note for each team whose quota or limits name SKUs that no cluster has. Such amounts have no effect."""
    there = {sku.name for member in members for sku in member.skus}
    return [
        f"the quota of team {team.name} names {', '.join(unknown)}, which no cluster has{did_you_mean(unknown[0], there)}"
        for team in teams
        if (unknown := sorted(((team.quota or {}).keys() | team.borrowing.keys()) - there))
    ]


def _short(tree: Tree, path: Path) -> tuple[list[tuple[str, ClusterGoal]], list[tuple[str, TeamGoal]]]:
    problems = list(tree.problems)
    try:
        found = ShortFile.model_validate(tree.value)
    except ValidationError as error:
        problems += [Problem(tree.place(where), where, reason) for where, reason in explain(error, ShortFile, tree.value)]
    if problems:
        problems.sort(key=lambda problem: (problem.place.line, problem.place.column))
        raise BadInput(
            "\n".join(problem.line(str(path)) for problem in problems),
            f"write clusters: [{{name: a, skus: [{{name: a100-80gb, nodes: 4, gpusPerNode: 8}}]}}], or Cluster manifests ({API_VERSION})",
        )
    return [(each.name, each) for each in found.clusters], [(each.name, each) for each in found.teams]


def _manifests(text: str, path: Path) -> tuple[list[tuple[str, ClusterGoal]], list[tuple[str, TeamGoal]]]:
    clusters: list[tuple[str, ClusterGoal]] = []
    teams: list[tuple[str, TeamGoal]] = []
    for document in parse_documents(_unlisted(text), str(path)):
        resource = document.resource
        if isinstance(resource, Cluster):
            clusters.append((resource.metadata.name, resource.spec))
        elif isinstance(resource, TeamManifest):
            teams.append((resource.metadata.name, resource.spec))
        else:
            reason = f"a simulation has no use for a {type(resource).__name__}"
            raise BadInput(document.complaint(("kind",), reason), "give Clusters, and Teams beside them")
    if not clusters:
        raise BadInput(f"{path}: holds no Cluster", "add a document with `kind: Cluster`, or a list `clusters:`")
    return clusters, teams


def _unlisted(text: str) -> str:
    """A List, as `kubectl get clusters,teams -o yaml` prints it, as one document per item, without what the API server adds."""
    values = [tree.value for tree in read_trees(text)[0] if isinstance(tree.value, dict)]
    lists = [value["items"] for value in values if value.get("kind") == "List" and isinstance(value.get("items"), list)]
    if not lists:
        return text
    kept = []
    for item in [*(value for value in values if value.get("kind") != "List"), *(item for items in lists for item in items)]:
        if isinstance(item, dict) and isinstance(item.get("metadata"), dict):
            kept.append(
                {**{key: item.get(key) for key in ("apiVersion", "kind", "spec")}, "metadata": {"name": item["metadata"].get("name")}}
            )
    return yaml.safe_dump_all(kept)


def _member(name: str, goal: ClusterGoal) -> Member:
    """The member as the hub sees it, with all machines up and empty."""
    nodes = [
        NodeInventory(name=f"{name}-{sku.name}-{number:04}", sku=sku.name, gpus=sku.gpus_per_node, free=sku.gpus_per_node)
        for sku in goal.skus
        for number in range(sku.nodes)
    ]
    return member_of(Cluster(metadata=Metadata(name=name), spec=goal), nodes)


def _team(name: str, goal: TeamGoal) -> Team:
    """The team by its spec. Usage and budget begin with the trace. The name may be one that Kubernetes objects cannot have."""
    return rights_of(name, goal)
