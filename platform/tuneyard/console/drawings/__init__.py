"""Drawings that reports do not have: the graph of a job's tasks, attempts on a time line, runs per day, nodes of a cluster. Pure.

Curves and bars are those of reports (`tuneyard.tracking.charts`). Colours come from the page's CSS; no drawing holds a style of its own,
which the console's content policy would refuse.
"""
