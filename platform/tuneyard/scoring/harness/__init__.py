"""Tasks of lm-evaluation-harness in a score task: its code makes requests and computes figures, our engines answer.

1. Before an engine starts, the driver has `program` build the requests of all tasks, in a process of its own, and keeps them as Parquet in
   the output (`work`, `process`). Equal requests are kept once.
2. Workers score them as rows of any score task (`rows`).
3. After the last part, the driver has `program` run the harness again, with the recorded answers (`answers`), for its figures.

`program`, `tasks` and `model` alone import the harness.
"""
