"""Training of rankers (the `rank` task): rows of wide tables in place of texts, embedding tables sharded over the ranks, normalised entropy
beside the loss. Order of rows, checkpoints, layouts of the dense part, report and retries are those of every training.

`attempt` is one attempt from the table to the saved ranker, `rows` gives batches, `trainer` steps and judges, `artifacts` saves.
"""
