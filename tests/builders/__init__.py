"""Objects and files that tests begin with: models, tokenizers, data, JobSpecs, Kubernetes objects, scheduling worlds. Nothing here runs."""
