"""Checkpoints: pieces of parameters and optimizer states, written by each rank on its own while training goes on, readable by any layout.

`Checkpoints` is what training sees; `catalogue` (list, verify, prune) and `convert` are for people. What is in a folder: `layout`.
"""
