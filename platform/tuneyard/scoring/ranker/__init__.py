"""Scores of a table by a ranker: rows of Parquet by projection, probabilities in parts, figures of all rows, by slice and in windows.

`table` opens and checks the table, `rows` reads any range of its rows, `probabilities` runs the ranker, `sums` is what the footer of a part
keeps, `worker` scores parts in a process of its own, and `work` is the driver's side. Torch is loaded by workers alone.
"""
