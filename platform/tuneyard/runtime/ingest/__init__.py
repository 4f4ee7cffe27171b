"""The ingestion service of a train task: master, data workers and fetchers on Ray."""
