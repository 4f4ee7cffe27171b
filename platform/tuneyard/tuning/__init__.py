"""history -> features -> predictor -> searcher. Nothing here yet."""
