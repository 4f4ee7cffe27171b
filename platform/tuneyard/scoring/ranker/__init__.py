"""Scores of a table by a ranker. Rows of Parquet are read by projection, probabilities are written in parts, and figures are computed over
all rows, by slice and in windows.

`table` opens and checks the table. `rows` reads any range of its rows. `probabilities` runs the ranker. `sums` are kept in the footer of a
part. `worker` scores parts in its own process. `work` is the driver's side. Only workers load torch.
"""
