"""`tuneyard chat`, and what it shares with `tuneyard generate`: the loaded model."""
