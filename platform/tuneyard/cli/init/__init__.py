"""`tuneyard init`: a commented JobSpec for the data of a folder."""
