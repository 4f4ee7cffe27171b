"""How the hub behaves: times in seconds, all of them in one place."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuneyard.federation import POLICIES, Policy
from tuneyard_operators.rendering import Defaults


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`namespace`: where the hub keeps its lease and the kubeconfigs of members."""

    namespace: str = "tuneyard-system"
    defaults: Defaults = field(default_factory=Defaults)
    policy: Policy = POLICIES["tuneyard"]
    qps: float = 500.0
    member_qps: float = 200.0
    at_once: int = 32
    """Reconciliations that run at one time."""
    member_lost_s: float = 300.0
    """A member that cannot be reached for so long has lost its attempts."""
    silent_s: float = 90.0
    """A running attempt whose report does not change for so long is lost, although its head pod is there."""
    image_grace_s: float = 30.0
    never_began_s: float = 1800.0
    """An attempt whose ranks have not begun after so long is tried elsewhere."""
    backoff_s: float = 5.0
    """Pause before the second attempt after a failure; doubles with each."""
    longest_backoff_s: float = 300.0
    heartbeat_s: float = 10.0

    @property
    def stop_grace_s(self) -> float:
        """What an attempt has to stop: one value for the hub, pods, reports and ranks."""
        return self.defaults.stop_grace_s
