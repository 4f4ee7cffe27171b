"""Hubs, members and machines under test: operators as processes, upgrades between versions, played attempts, weeks of Schedules.

The clusters themselves are made by `tests.testcluster`.
"""
