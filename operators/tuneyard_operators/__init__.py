"""Controllers around `federation` and `api`: what turns JobSpecs on a hub into RayJobs on members, and keeps at it.

`kube` talks to API servers, `rendering` writes RayJobs, `hub` decides and acts. Started by `python -m tuneyard_operators hub`. Nothing
here loads torch, ray, vllm or transformers.
"""
