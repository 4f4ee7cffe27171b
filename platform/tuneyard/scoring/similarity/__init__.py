"""Cosines of sentence embeddings, for `embedding_similarity`: each worker loads the encoder of `score.embedding`, or asks an endpoint."""

from tuneyard.scoring.similarity.rows import Similarities, similarities_of

__all__ = ["Similarities", "similarities_of"]
