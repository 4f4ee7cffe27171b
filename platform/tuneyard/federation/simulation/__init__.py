"""Simulation of a policy: the hub's scheduler plays a trace of jobs on machines that may fail.

`simulate` plays a trace and returns a Run, and `results_of` returns the figures of a Run. There are no clocks and no files: jobs, machines
and randomness come in as arguments. `tuneyard simulate` reads the files and draws the results.
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
