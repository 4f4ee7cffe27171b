"""Shards that the jobs of a team share: a bucket or a volume in which a shard that one job has built is found by the next.

A job loses nothing by it but the time limits of `tier`: a tier that is full, slow, damaged or away leaves the work as it is without one.
"""
