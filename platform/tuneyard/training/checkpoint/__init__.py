"""Checkpoints: pieces of parameters and optimizer states. Each rank writes its own while training continues, and any layout can read them.

`Checkpoints` is the interface for training; `catalogue` (list, verify, prune) and `convert` are for people. `layout` describes the folder.
"""
