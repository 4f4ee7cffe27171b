"""`tuneyard submit`, from a shell, from Python and in a notebook."""
