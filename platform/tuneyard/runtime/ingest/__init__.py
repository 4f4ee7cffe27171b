"""The data service of a job: master, workers and fetchers on Ray."""
