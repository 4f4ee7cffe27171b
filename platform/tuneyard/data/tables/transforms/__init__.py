"""Transformations of features: DPP's table (Zhao et al. 2022, table 11) as vectorised kernels over Arrow buffers, declared as data."""

from tuneyard.data.tables.transforms.pipeline import OPERATIONS, Pipeline, Sampling

__all__ = ["OPERATIONS", "Pipeline", "Sampling"]
