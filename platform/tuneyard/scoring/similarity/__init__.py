"""Cosines of sentence embeddings, for the metric `embedding_similarity`. Each worker loads the encoder of `score.embedding` once."""

from tuneyard.scoring.similarity.rows import Similarities, similarities_of

__all__ = ["Similarities", "similarities_of"]
