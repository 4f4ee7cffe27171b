"""Training of rankers (the `rank` task): rows of wide tables instead of texts, embedding tables sharded over the ranks, normalised entropy
beside the loss. Order of rows, checkpoints, layouts of the dense part, report and retries are those of all training.

`attempt` is one attempt from the table to the saved ranker, `rows` makes batches, `trainer` steps and evaluates, `artifacts` saves.
"""
