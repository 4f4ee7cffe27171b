"""Ranks on a machine that has joined meanwhile: Ray may start them before our agent there is up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tuneyard.runtime.gang.mailbox import RankProcess
from tuneyard.runtime.nodes.agent import LogTarget, Look
from tuneyard.runtime.nodes.nodes import Nodes
from tuneyard.runtime.nodes.pod import Pod


@dataclass
class Ship:
    shipped: list[tuple[str, str]] = field(default_factory=list)

    def remote(self, source: str, log: str) -> None:
        self.shipped.append((source, log))


@dataclass
class Agent:
    ship: Ship = field(default_factory=Ship)


def rank(number: int, machine: str, *, pid: int = 7) -> RankProcess:
    return RankProcess(number, pid, machine, f"/logs/rank-{number}.log", Pod(machine, f"node-{machine}"), machine)


def nodes_with(*machines: str) -> tuple[Nodes, dict[str, Agent]]:
    nodes, agents = Nodes(LogTarget("", "train", 1, ()), ()), {machine: Agent() for machine in machines}
    for machine, agent in agents.items():
        join(nodes, machine, agent)
    return nodes, agents


def join(nodes: Nodes, machine: str, agent: Any) -> None:
    nodes._add(machine, agent, (Pod(machine, f"node-{machine}"), 1, Look(frozenset(), 0)))


def test_a_rank_is_followed_as_soon_as_the_agent_of_its_machine_is_up() -> None:
    nodes, _ = nodes_with("a")
    early, agent = rank(1, "b"), Agent()
    nodes.follow(early, "rank-1")
    join(nodes, "b", agent)
    assert agent.ship.shipped == [("rank-1", "/logs/rank-1.log")]
    nodes._nodes["b"].lost = "is gone with all its processes"
    assert nodes.gone([early]) == [early]


def test_a_machine_that_answers_too_late_takes_no_log_from_the_one_that_has_the_rank_now() -> None:
    nodes, agents = nodes_with("a")
    late = Agent()
    nodes.follow(rank(1, "b"), "rank-1")
    nodes.follow(rank(1, "a", pid=8), "rank-1")
    join(nodes, "b", late)
    assert late.ship.shipped == []
    assert agents["a"].ship.shipped == [("rank-1", "/logs/rank-1.log")]


def test_a_lost_machine_that_answers_again_is_followed_from_then_on() -> None:
    nodes, _ = nodes_with("a")
    nodes._nodes["a"].lost = "has not answered for 45 s"
    again = Agent()
    nodes.follow(rank(0, "a"), "rank-0")
    join(nodes, "a", again)
    assert again.ship.shipped == [("rank-0", "/logs/rank-0.log")]
