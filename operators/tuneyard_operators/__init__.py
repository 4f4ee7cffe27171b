"""Controllers around `federation` and `api`: the hub turns JobSpecs into RayJobs on member clusters, and follows them to their end.

`kube` talks to API servers, `rendering` writes RayJobs, `hub` decides and acts, `logs` serves the logs of jobs. Started by
`python -m tuneyard_operators hub`. Nothing here loads torch, ray, vllm or transformers.
"""
