"""What would have happened: a trace of jobs on machines that may fail, under any policy, decided by the scheduler that the hub runs.

`simulate` plays a trace and returns a Run, `results_of` its figures. No clock and no files: jobs, machines and randomness come in as
arguments; `tuneyard simulate` reads them, and draws what comes out.
"""

from tuneyard.federation.simulation.life import Life, Stay
from tuneyard.federation.simulation.results import Results, TeamResults, jain, results_of, starved
from tuneyard.federation.simulation.scenario import ORACLES, Checkpoints, Failures, Scenario, TraceJob
from tuneyard.federation.simulation.series import Samples, Series
from tuneyard.federation.simulation.simulator import Observe, Progress, Run, simulate

__all__ = [
    "ORACLES",
    "Checkpoints",
    "Failures",
    "Life",
    "Observe",
    "Progress",
    "Results",
    "Run",
    "Samples",
    "Scenario",
    "Series",
    "Stay",
    "TeamResults",
    "TraceJob",
    "jain",
    "results_of",
    "simulate",
    "starved",
]
