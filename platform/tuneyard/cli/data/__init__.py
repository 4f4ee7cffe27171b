"""`tuneyard data`: columns of a data set and their roles."""
