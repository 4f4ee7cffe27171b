"""`tuneyard plan`: the plan of each task, as a table, a picture, or JSON."""
