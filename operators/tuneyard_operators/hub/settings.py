"""The settings of the hub. All times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuneyard.federation import POLICIES, Policy
from tuneyard_operators.history import HistorySettings
from tuneyard_operators.rendering import Defaults


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`namespace`: namespace of the hub's lease and of the Secrets with members' kubeconfigs."""

    namespace: str = "tuneyard-system"
    defaults: Defaults = field(default_factory=Defaults)
    policy: Policy = POLICIES["tuneyard"]
    qps: float = 500.0
    member_qps: float = 200.0
    at_once: int = 32
    """Workers: reconciliations that run at the same time."""
    member_lost_s: float = 300.0
    """Attempts on a member that cannot be reached for longer count as lost."""
    silent_s: float = 90.0
    """A running attempt whose report does not change for longer counts as lost, even if its head pod exists."""
    image_grace_s: float = 30.0
    never_began_s: float = 1800.0
    """An attempt whose ranks have not started this long after its placement counts as lost."""
    backoff_s: float = 5.0
    """Pause before the attempt after the second failure; doubles with each further one."""
    longest_backoff_s: float = 300.0
    heartbeat_s: float = 10.0
    webhook_hosts: tuple[str, ...] = ("hooks.slack.com",)
    """Patterns of host names that the webhooks of Schedules may have."""
    name_nodes: tuple[str, ...] = ()
    """Name nodes, as HOST or HOST:PORT, on which Schedules may wait for data."""

    namespace_bytes: int = 2**29
    """Most memory that the JobSpecs of one namespace take in the hub, a quarter of the chart's limit; what is beyond waits."""

    history: HistorySettings = field(default_factory=HistorySettings)

    @property
    def at_once_of_one(self) -> int:
        """Workers that the jobs of one namespace have at most: half, so that jobs that change all the time leave the others as many."""
        return max(1, self.at_once // 2)

    @property
    def schedule_bytes(self) -> int:
        """Most memory that the Schedules of one namespace take: a quarter of what its JobSpecs do, which are many more."""
        return self.namespace_bytes // 4

    @property
    def stop_grace_s(self) -> float:
        """Seconds that an attempt has to stop: one value for the hub, pods, reports and ranks."""
        return self.defaults.stop_grace_s
