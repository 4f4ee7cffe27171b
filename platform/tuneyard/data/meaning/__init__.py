"""What values and names of columns mean: paths, numbers that stand for text, names of roles, and columns that are not used."""
